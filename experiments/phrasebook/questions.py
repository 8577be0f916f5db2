"""The patterns of questions and negations."""

from actions import ACTIONS, DAILY
from patterns import ALL, Template, fill, fits, whoever
from words import (
    CITIES,
    DAYS,
    INDOORS,
    MEALS,
    NAMED,
    NAMES,
    PLACES,
    PRONOUNS,
    QUALITIES,
    RELATIVES,
    SERVED,
    THINGS,
    WHOSE,
    pairs,
)

__all__ = ["questions_and_negation"]

_HOLDERS = (PRONOUNS, RELATIVES)
_ASKED = (PRONOUNS[2:], RELATIVES, NAMES)  # Nobody asks whether "i" or "we" do something.
_POINTED = pairs("this = ಇದು, that = ಅದು")
_SOON = pairs("today = ಇಂದು, tomorrow = ನಾಳೆ")
_ASKED_AS_IT_IS = pairs("""what is this = ಇದು ಏನು, what is that = ಅದು ಏನು, who is this = ಇವರು ಯಾರು
what time is it = ಗಂಟೆ ಎಷ್ಟು, what day is today = ಇಂದು ಯಾವ ವಾರ""")
_DENIED_AS_IT_IS = pairs("i do not know = ನನಗೆ ಗೊತ್ತಿಲ್ಲ, it is not there = ಅದು ಅಲ್ಲಿ ಇಲ್ಲ")


def questions_and_negation() -> tuple[Template, ...]:
    """Fills the patterns of questions and negations."""
    return (
        # questions
        fill("questions", ALL, "{q}", "{q.kannada}", q=_ASKED_AS_IT_IS),
        fill("questions", ALL, "what is {w} name", "{w.kannada} ಹೆಸರು ಏನು", w=NAMED),
        fill("questions", ALL, "what is the name of {r}", "{r.genitive} ಹೆಸರು ಏನು", r=RELATIVES),
        fill("questions", ALL, "who is {n}", "{n.kannada} ಯಾರು", n=NAMES),
        whoever("questions", ALL, "where {s.is_} {s}", "{s.kannada} ಎಲ್ಲಿದ್ದ{s.now}", *_ASKED),
        whoever(
            "questions",
            ALL,
            "how {s.is_} {s}",
            "{s.kannada} ಹೇಗಿದ್ದ{s.now}",
            PRONOUNS[3:],
            RELATIVES,
            NAMES,
        ),
        whoever(
            "questions", ALL, "what {s.is_} {s} doing", "{s.kannada} ಏನು ಮಾಡುತ್ತಿದ್ದ{s.now}", *_ASKED
        ),
        whoever(
            "questions", ALL, "where {s.is_} {s} going", "{s.kannada} ಎಲ್ಲಿಗೆ ಹೋಗುತ್ತಿದ್ದ{s.now}", *_ASKED
        ),
        fill(
            "questions",
            ALL,
            "how old {s.is_} {s}",
            "{s.dative} ಎಷ್ಟು ವರ್ಷ",
            s=PRONOUNS[2:] + RELATIVES,
        ),
        fill(
            "questions", ALL, "where is {w} {o}", "{w.kannada} {o.kannada} ಎಲ್ಲಿದೆ", w=WHOSE, o=THINGS
        ),
        fill("questions", ALL, "where is {p}", "{p.kannada} ಎಲ್ಲಿದೆ", p=PLACES + CITIES),
        fill(
            "questions",
            ALL,
            "whose {o} is {d}",
            "{d.kannada} ಯಾರ {o.kannada}",
            d=_POINTED,
            o=THINGS,
        ),
        fill(
            "questions",
            200,
            "how many {o.many} {s.do} {s} have",
            "{s.genitive} ಬಳಿ ಎಷ್ಟು {o.plural} ಇವೆ",
            o=THINGS,
            s=PRONOUNS[2:] + RELATIVES,
        ),
        fill(
            "questions",
            ALL,
            "how many {o.many} are there in {p}",
            "{p.inside} ಎಷ್ಟು {o.plural} ಇವೆ",
            o=THINGS,
            p=INDOORS,
        ),
        whoever(
            "questions",
            450,
            "did {s} {a.base} yesterday",
            "{s.kannada} ನಿನ್ನೆ {a.past}{s.asked_then}",
            *_ASKED,
            a=ACTIONS,
        ),
        whoever(
            "questions",
            450,
            "will {s} {a.base} tomorrow",
            "{s.kannada} ನಾಳೆ {a.habit}{s.asked_now}",
            *_ASKED,
            a=ACTIONS,
        ),
        whoever(
            "questions",
            390,
            "{s.is_} {s} {a.doing} now",
            "{s.kannada} ಈಗ {a.going_on}{s.asked_now}",
            *_ASKED,
            a=ACTIONS,
        ),
        whoever(
            "questions",
            330,
            "when will {s} {a.base}",
            "{s.kannada} ಯಾವಾಗ {a.habit}{s.now}",
            *_ASKED,
            a=ACTIONS,
        ),
        whoever(
            "questions",
            270,
            "why {s.is_} {s} {a.doing}",
            "{s.kannada} ಏಕೆ {a.going_on}{s.now}",
            *_ASKED,
            a=ACTIONS,
        ),
        fill("questions", ALL, "who will {a.base} tomorrow", "ಯಾರು ನಾಳೆ {a.habit}ಾರೆ", a=ACTIONS),
        whoever(
            "questions",
            330,
            "{s.is_} {s} in {p}",
            "{s.kannada} {p.inside} ಇದ್ದ{s.asked_now}",
            *_ASKED,
            p=PLACES + CITIES,
        ),
        fill(
            "questions",
            330,
            "{s.do} {s} want {f}",
            "{s.dative} {f.kannada} ಬೇಕಾ",
            s=PRONOUNS[2:] + RELATIVES,
            f=MEALS,
        ),
        fill(
            "questions", ALL, "is the {f} {q}", "{f.kannada} {q.kannada}ದೆಯಾ", f=SERVED, q=QUALITIES
        ),
        # negation
        fill("negation", ALL, "{n}", "{n.kannada}", n=_DENIED_AS_IT_IS),
        fill(
            "negation",
            ALL,
            "the {f} is not {q}",
            "{f.kannada} {q.kannada}ಲ್ಲ",
            f=SERVED,
            q=QUALITIES,
        ),
        fill(
            "negation",
            200,
            "{w} name is not {n}",
            "{w.kannada} ಹೆಸರು {n.kannada} ಅಲ್ಲ",
            w=NAMED,
            n=NAMES,
        ),
        fill(
            "negation",
            330,
            "{n} is not {r}",
            "{n.kannada} {r.kannada} ಅಲ್ಲ",
            where=fits,
            n=NAMES,
            r=RELATIVES,
        ),
        fill("negation", ALL, "{t} is not {d}", "{t.kannada} {d.kannada} ಅಲ್ಲ", t=_SOON, d=DAYS),
        whoever("negation", 570, "{s} {s.do} not {a.base}", "{s.kannada} {a.root}ುವುದಿಲ್ಲ", a=DAILY),
        whoever(
            "negation",
            570,
            "{s} did not {a.base} yesterday",
            "{s.kannada} ನಿನ್ನೆ {a.root}ಲಿಲ್ಲ",
            a=ACTIONS,
        ),
        whoever(
            "negation",
            450,
            "{s} will not {a.base} tomorrow",
            "{s.kannada} ನಾಳೆ {a.root}ುವುದಿಲ್ಲ",
            a=ACTIONS,
        ),
        whoever(
            "negation",
            390,
            "{s} {s.is_} not {a.doing} now",
            "{s.kannada} ಈಗ {a.root}ುತ್ತಿಲ್ಲ",
            a=ACTIONS,
        ),
        whoever("negation", 270, "{s} should not {a.base}", "{s.kannada} {a.root}ಬಾರದು", a=ACTIONS),
        fill("negation", ALL, "please do not {a.base}", "ದಯವಿಟ್ಟು {a.root}ಬೇಡಿ", a=ACTIONS),
        whoever(
            "negation",
            330,
            "{s} {s.is_} not in {p}",
            "{s.kannada} {p.inside} ಇಲ್ಲ",
            p=PLACES + CITIES,
        ),
        whoever(
            "negation",
            330,
            "{s} {s.do} not like {f}",
            "{s.dative} {f.kannada} ಇಷ್ಟ ಇಲ್ಲ",
            *_HOLDERS,
            f=MEALS,
        ),
        whoever(
            "negation",
            330,
            "{s} {s.do} not want {f}",
            "{s.dative} {f.kannada} ಬೇಡ",
            *_HOLDERS,
            f=MEALS,
        ),
        whoever(
            "negation",
            270,
            "{s} {s.do} not have {o.with_article}",
            "{s.genitive} ಬಳಿ {o.kannada} ಇಲ್ಲ",
            *_HOLDERS,
            o=THINGS,
        ),
    )
