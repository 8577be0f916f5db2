"""The patterns of statements, topic by topic."""

from actions import ACTIONS, COME, DAILY, EAT_AND_DRINK, GO
from patterns import ALL, Template, differ, fill, fits, whoever
from words import (
    CITIES,
    DAYS,
    GREETINGS,
    HOURS,
    INDOORS,
    MEALS,
    NAMED,
    NAMES,
    NUMBERS,
    PHRASES,
    PLACES,
    PROFESSIONS,
    PRONOUNS,
    QUALITIES,
    RELATIVES,
    SERVED,
    SIBLINGS,
    THINGS,
    WHOSE,
    pairs,
)

__all__ = ["statements"]

_HOLDERS = (PRONOUNS, RELATIVES)
_MEN = tuple(name for name in NAMES if not name.feminine)
_WOMEN = tuple(name for name in NAMES if name.feminine)
_ELDERS = tuple(relative for relative in RELATIVES if relative.person == 5)
_YOUNGER_MEN = tuple(relative for relative in RELATIVES if relative.person == 3)
_YOUNGER_WOMEN = tuple(relative for relative in RELATIVES if relative.person == 4)
# Only "my" and "our", because "he saw his father" would need ತನ್ನ ತಂದೆ, "his own".
_OURS = RELATIVES[: len(RELATIVES) // 3]
_MANY = NUMBERS[1:]
_PERSONS = pairs("two = ಇಬ್ಬರು, three = ಮೂವರು, four = ನಾಲ್ವರು, five = ಐವರು")
_PARTS = pairs("in the morning = ಬೆಳಿಗ್ಗೆ, in the evening = ಸಂಜೆ, at night = ರಾತ್ರಿ")
_POINTED = pairs("this = ಈ, that = ಆ")
_SOON = pairs("today = ಇಂದು, tomorrow = ನಾಳೆ")


def statements() -> tuple[Template, ...]:
    """Fills the patterns of statements."""
    return (
        # greetings
        fill("greetings", ALL, "{g}", "{g.kannada}", g=PHRASES + GREETINGS),
        fill("greetings", ALL, "{g} {n}", "{g.kannada} {n.kannada}", g=GREETINGS, n=NAMES),
        whoever("greetings", ALL, "{s} {s.is_} well", "{s.kannada} ಚೆನ್ನಾಗಿದ್ದ{s.now}"),
        whoever("greetings", ALL, "{s} {s.was} well yesterday", "{s.kannada} ನಿನ್ನೆ ಚೆನ್ನಾಗಿದ್ದ{s.then}"),
        # names
        fill("names", ALL, "{w} name is {n}", "{w.kannada} ಹೆಸರು {n.kannada}", w=NAMED, n=NAMES),
        fill(
            "names",
            450,
            "the name of {r} is {n}",
            "{r.genitive} ಹೆಸರು {n.kannada}",
            where=fits,
            r=RELATIVES,
            n=NAMES,
        ),
        fill(
            "names",
            330,
            "{n} and {m} are friends",
            "{n.kannada} ಮತ್ತು {m.kannada} ಸ್ನೇಹಿತರು",
            where=differ,
            n=NAMES,
            m=NAMES,
        ),
        fill(
            "names",
            270,
            "his name is {n} and her name is {m}",
            "ಅವನ ಹೆಸರು {n.kannada} ಮತ್ತು ಅವಳ ಹೆಸರು {m.kannada}",
            n=_MEN,
            m=_WOMEN,
        ),
        fill("names", ALL, "i am {n}", "ನಾನು {n.kannada}", n=NAMES),
        fill("names", ALL, "this is {n}", "ಇವರು {n.kannada}", n=NAMES),
        # family
        fill("family", ALL, "this is {r}", "ಇವರು {r.kannada}", r=_ELDERS),
        fill("family", ALL, "this is {r}", "ಇವನು {r.kannada}", r=_YOUNGER_MEN),
        fill("family", ALL, "this is {r}", "ಇವಳು {r.kannada}", r=_YOUNGER_WOMEN),
        fill(
            "family", 450, "{n} is {r}", "{n.kannada} {r.kannada}", where=fits, n=NAMES, r=RELATIVES
        ),
        whoever(
            "family",
            200,
            "{s} {s.is_} {p}",
            "{s.kannada} {p.kannada}",
            _MEN,
            _YOUNGER_MEN,
            p=PROFESSIONS[0],
        ),
        whoever(
            "family",
            200,
            "{s} {s.is_} {p}",
            "{s.kannada} {p.kannada}",
            _WOMEN,
            [r for r in RELATIVES if r.feminine],
            p=PROFESSIONS[1],
        ),
        fill(
            "family",
            ALL,
            "{s} {s.is_} {p}",
            "{s.kannada} {p.kannada}",
            s=[r for r in _ELDERS if not r.feminine],
            p=PROFESSIONS[2],
        ),
        fill(
            "family",
            ALL,
            "{s} {s.have} {c} {b}",
            "{s.dative} {c.kannada} {b.kannada} ಇದ್ದಾರೆ",
            s=PRONOUNS,
            c=_PERSONS,
            b=SIBLINGS,
        ),
        whoever(
            "family",
            330,
            "{s} saw {r} in {p}",
            "{s.kannada} {r.accusative} {p.inside} ನೋಡಿದ{s.then}",
            PRONOUNS[:2],
            NAMES,
            r=_OURS,
            p=PLACES,
        ),
        whoever(
            "family",
            270,
            "{s} will help {r} {t}",
            "{s.kannada} {t.kannada} {r.dative} ಸಹಾಯ ಮಾಡುತ್ತ{s.now}",
            PRONOUNS[:2],
            NAMES,
            r=_OURS,
            t=_SOON,
        ),
        # numbers
        whoever(
            "numbers",
            630,
            "{s} {s.have} {c} {o.many}",
            "{s.genitive} ಬಳಿ {c.kannada} {o.plural} ಇವೆ",
            *_HOLDERS,
            c=_MANY,
            o=THINGS,
        ),
        whoever(
            "numbers",
            570,
            "{s} bought {c} {o.many} yesterday",
            "{s.kannada} ನಿನ್ನೆ {c.kannada} {o.plural_accusative} ಖರೀದಿಸಿದ{s.then}",
            c=_MANY,
            o=THINGS,
        ),
        fill(
            "numbers",
            ALL,
            "{s} {s.is_} {c} years old",
            "{s.dative} {c.kannada} ವರ್ಷ",
            s=PRONOUNS,
            c=_MANY,
        ),
        fill(
            "numbers",
            270,
            "{s} is {c} years old",
            "{s.dative} {c.kannada} ವರ್ಷ",
            s=_YOUNGER_MEN + _YOUNGER_WOMEN,
            c=NUMBERS[4:22],
        ),
        fill(
            "numbers",
            ALL,
            "{s} is {c} years old",
            "{s.dative} {c.kannada} ವರ್ಷ",
            s=_ELDERS,
            c=NUMBERS[21:27],
        ),
        fill(
            "numbers",
            330,
            "the price of {d} {o} is {c} rupees",
            "{d.kannada} {o.genitive} ಬೆಲೆ {c.kannada} ರೂಪಾಯಿ",
            d=_POINTED,
            o=THINGS,
            c=_MANY,
        ),
        fill(
            "numbers",
            450,
            "there are {c} {o.many} in {p}",
            "{p.inside} {c.kannada} {o.plural} ಇವೆ",
            c=_MANY,
            o=THINGS,
            p=INDOORS,
        ),
        # days
        fill("days", ALL, "{t} is {d}", "{t.kannada} {d.kannada}", t=_SOON, d=DAYS),
        fill("days", ALL, "yesterday was {d}", "ನಿನ್ನೆ {d.kannada}", d=DAYS),
        fill("days", ALL, "it is {h}", "ಈಗ {h.kannada}", h=HOURS),
        whoever(
            "days",
            630,
            "{s} will {a.base} on {d}",
            "{s.kannada} {d.kannada} {a.habit}{s.now}",
            a=GO + COME,
            d=DAYS,
        ),
        whoever(
            "days",
            510,
            "{s} {does} every {d}",
            "{s.kannada} ಪ್ರತಿ {d.kannada} {a.habit}{s.now}",
            a=DAILY,
            d=DAYS,
        ),
        whoever(
            "days", 450, "{s} will come at {h}", "{s.kannada} {h.kannada}ಗೆ ಬರುತ್ತ{s.now}", h=HOURS
        ),
        whoever("days", 450, "{s} came at {h}", "{s.kannada} {h.kannada}ಗೆ ಬಂದ{s.then}", h=HOURS),
        # places
        whoever(
            "places",
            510,
            "{s} {s.is_} in {p}",
            "{s.kannada} {p.inside} ಇದ್ದ{s.now}",
            p=PLACES + CITIES,
        ),
        whoever(
            "places",
            450,
            "{s} {s.was} in {p} yesterday",
            "{s.kannada} ನಿನ್ನೆ {p.inside} ಇದ್ದ{s.then}",
            p=PLACES + CITIES,
        ),
        whoever(
            "places", 390, "{s} live{s.s} in {p}", "{s.kannada} {p.inside} ವಾಸಿಸುತ್ತ{s.now}", p=CITIES
        ),
        whoever(
            "places",
            390,
            "{s} work{s.s} in {p}",
            "{s.kannada} {p.inside} ಕೆಲಸ ಮಾಡುತ್ತ{s.now}",
            p=PLACES + CITIES,
        ),
        whoever(
            "places",
            390,
            "{s} came from {p}",
            "{s.kannada} {p.away} ಬಂದ{s.then}",
            p=PLACES + CITIES,
        ),
        whoever(
            "places",
            570,
            "{s} went to {p} with {n}",
            "{s.kannada} {n.kannada} ಜೊತೆ {p.dative} ಹೋದ{s.then}",
            p=PLACES + CITIES,
            n=NAMES,
            where=differ,
        ),
        fill(
            "places",
            390,
            "{w} {o} is in {p}",
            "{w.kannada} {o.kannada} {p.inside} ಇದೆ",
            w=WHOSE,
            o=THINGS,
            p=INDOORS,
        ),
        # food
        whoever("food", 450, "{s} like{s.s} {f}", "{s.dative} {f.kannada} ಇಷ್ಟ", *_HOLDERS, f=MEALS),
        whoever(
            "food",
            510,
            "{s} like{s.s} {f} and {g}",
            "{s.dative} {f.kannada} ಮತ್ತು {g.kannada} ಇಷ್ಟ",
            *_HOLDERS,
            f=MEALS,
            g=MEALS,
            where=differ,
        ),
        whoever("food", 390, "{s} want{s.s} {f}", "{s.dative} {f.kannada} ಬೇಕು", *_HOLDERS, f=MEALS),
        whoever(
            "food",
            330,
            "please give {s.object} {f}",
            "ದಯವಿಟ್ಟು {s.dative} {f.kannada} ಕೊಡಿ",
            (*PRONOUNS[:2], *PRONOUNS[3:]),
            RELATIVES,
            f=MEALS,
        ),
        whoever(
            "food",
            570,
            "{s} {does} {t}",
            "{s.kannada} {t.kannada} {a.habit}{s.now}",
            a=EAT_AND_DRINK,
            t=_PARTS,
        ),
        fill("food", ALL, "the {f} is {q}", "{f.kannada} {q.kannada}ದೆ", f=SERVED, q=QUALITIES),
        # verbs
        whoever(
            "verbs", 690, "{s} {does} every day", "{s.kannada} ಪ್ರತಿದಿನ {a.habit}{s.now}", a=DAILY
        ),
        whoever(
            "verbs", 840, "{s} {a.did} yesterday", "{s.kannada} ನಿನ್ನೆ {a.past}{s.then}", a=ACTIONS
        ),
        whoever(
            "verbs",
            840,
            "{s} will {a.base} tomorrow",
            "{s.kannada} ನಾಳೆ {a.habit}{s.now}",
            a=ACTIONS,
        ),
        whoever(
            "verbs",
            780,
            "{s} {s.is_} {a.doing} now",
            "{s.kannada} ಈಗ {a.going_on}{s.now}",
            a=ACTIONS,
        ),
        whoever(
            "verbs",
            390,
            "{s} {s.was} {a.doing} yesterday",
            "{s.kannada} ನಿನ್ನೆ {a.going_on}{s.then}",
            a=DAILY,
        ),
        whoever("verbs", 390, "{s} must {a.base} today", "{s.kannada} ಇಂದು {a.root}ಬೇಕು", a=ACTIONS),
        whoever(
            "verbs", 330, "{s} may {a.base} tomorrow", "{s.kannada} ನಾಳೆ {a.root}ಬಹುದು", a=ACTIONS
        ),
        fill("verbs", ALL, "please {a.base}", "ದಯವಿಟ್ಟು {a.request}", a=ACTIONS),
        fill("verbs", ALL, "let us {a.base}", "{a.root}ೋಣ", a=[a for a in ACTIONS if a not in COME]),
    )
