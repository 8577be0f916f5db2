"""What the tests of figures ask of every one."""

import io

import numpy as np
from matplotlib.image import imread
from matplotlib.text import Text


def pixels(figure):
    """Draws a figure as PNG, in which any warning is an error: float32 [rows, columns, 4]."""
    file = io.BytesIO()
    figure.savefig(file, format="png")
    file.seek(0)
    return imread(file)


def assert_readable(figure):
    """Checks that it is not empty, that all letters have 7 points, and that no panels overlap."""
    image = pixels(figure)
    assert (np.ptp(image[..., :3], axis=(0, 1)) > 0.5).all()
    height, width, _ = image.shape
    texts = [text for text in figure.findobj(Text) if text.get_text() and text.get_visible()]
    assert texts and min(text.get_fontsize() for text in texts) >= 7
    boxes = [axes.get_tightbbox() for axes in figure.axes]
    for box in boxes:
        assert box.x0 >= -1 and box.y0 >= -1 and box.x1 <= width + 1 and box.y1 <= height + 1
    for i, box in enumerate(boxes):
        for other in boxes[:i]:
            apart = box.x1 <= other.x0 + 1 or other.x1 <= box.x0 + 1
            assert apart or box.y1 <= other.y0 + 1 or other.y1 <= box.y0 + 1


def assert_numbers_fit(figure):
    """Checks that the numbers of the cells do not reach into the next ones."""
    figure.draw_without_rendering()
    for axes in figure.axes:
        for text in axes.texts:
            box = axes.transData.inverted().transform(text.get_window_extent())
            width, height = np.abs(box[1] - box[0])
            assert width < 0.97 and height < 0.97, (text.get_text(), width, height)


def numbers(axes):
    """The numbers in the cells as they are written, row by row."""
    written = {
        (round(y), round(x)): t.get_text() for t in axes.texts for x, y in [t.get_position()]
    }
    return [written[place] for place in sorted(written)]


def legend_of(figure):
    """The entries of all legends of a figure."""
    legends = [*figure.legends, *(axes.get_legend() for axes in figure.axes)]
    return [text.get_text() for legend in legends if legend for text in legend.get_texts()]


def bar_label(figure):
    """What stands beside the colour bar, which is the last of the axes."""
    return figure.axes[-1].get_ylabel()
