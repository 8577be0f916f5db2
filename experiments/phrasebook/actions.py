"""The verbs of the phrasebook, with their complements."""

from forms import Action, Verb, Word
from words import CITIES, DRINKS, FOODS, PLACES, THINGS, pairs

__all__ = ["ACTIONS", "COME", "DAILY", "EAT_AND_DRINK", "GO"]

_LANGUAGES = pairs("""kannada = ಕನ್ನಡ, hindi = ಹಿಂದಿ, english = ಇಂಗ್ಲಿಷ್, tamil = ತಮಿಳು
telugu = ತೆಲುಗು, marathi = ಮರಾಠಿ, sanskrit = ಸಂಸ್ಕೃತ, konkani = ಕೊಂಕಣಿ, tulu = ತುಳು""")
_GAMES = pairs("cricket = ಕ್ರಿಕೆಟ್, hockey = ಹಾಕಿ, chess = ಚದುರಂಗ, kabaddi = ಕಬಡ್ಡಿ, tennis = ಟೆನಿಸ್")
_DONE = pairs("""work works worked working = ಕೆಲಸ, cook cooks cooked cooking = ಅಡುಗೆ
sleep sleeps slept sleeping = ನಿದ್ದೆ, bathe bathes bathed bathing = ಸ್ನಾನ
dance dances danced dancing = ನೃತ್ಯ, exercise exercises exercised exercising = ವ್ಯಾಯಾಮ
travel travels traveled traveling = ಪ್ರಯಾಣ""")
_TEXTS = pairs("""the story = ಕಥೆಯನ್ನು, the letter = ಪತ್ರವನ್ನು, the lesson = ಪಾಠವನ್ನು
the book = ಪುಸ್ತಕವನ್ನು""")
_SOUNDS = pairs("the song = ಹಾಡನ್ನು, the story = ಕಥೆಯನ್ನು, the lesson = ಪಾಠವನ್ನು")
_DOORS = pairs("the door = ಬಾಗಿಲನ್ನು, the window = ಕಿಟಕಿಯನ್ನು, the shop = ಅಂಗಡಿಯನ್ನು")
_SEEN = pairs("the picture = ಚಿತ್ರವನ್ನು, the flower = ಹೂವನ್ನು, the garden = ತೋಟವನ್ನು")

_READ = Verb("read reads read reading", "ಓದ", "ಓದಿದ", "ಓದಿ")
_LISTEN = Verb("listen listens listened listening", "ಕೇಳ", "ಕೇಳಿದ", "ಕೇಳಿ")
_SING = Verb("sing sings sang singing", "ಹಾಡ", "ಹಾಡಿದ", "ಹಾಡಿ")
_SEARCH = Verb("search searches searched searching", "ಹುಡುಕ", "ಹುಡುಕಿದ", "ಹುಡುಕಿ")
_LOOK = Verb("look looks looked looking", "ನೋಡ", "ನೋಡಿದ", "ನೋಡಿ")
_GO = Verb("go goes went going", "ಹೋಗ", "ಹೋದ", "ಹೋಗಿ")
_COME = Verb("come comes came coming", "ಬರ", "ಬಂದ", "ಬನ್ನಿ")
_EAT = Verb("eat eats ate eating", "ತಿನ್ನ", "ತಿಂದ", "ತಿನ್ನಿ")
_DRINK = Verb("drink drinks drank drinking", "ಕುಡಿಯ", "ಕುಡಿದ", "ಕುಡಿಯಿರಿ")
_WRITE = Verb("write writes wrote writing", "ಬರೆಯ", "ಬರೆದ", "ಬರೆಯಿರಿ")
_PLAY = Verb("play plays played playing", "ಆಡ", "ಆಡಿದ", "ಆಡಿ")
_LEARN = Verb("learn learns learned learning", "ಕಲಿಯ", "ಕಲಿತ", "ಕಲಿಯಿರಿ")
_SPEAK = Verb("speak speaks spoke speaking", "ಮಾತನಾಡ", "ಮಾತನಾಡಿದ", "ಮಾತನಾಡಿ")
_BUY = Verb("buy buys bought buying", "ಖರೀದಿಸ", "ಖರೀದಿಸಿದ", "ಖರೀದಿಸಿ")
_BRING = Verb("bring brings brought bringing", "ತರ", "ತಂದ", "ತನ್ನಿ")
_SELL = Verb("sell sells sold selling", "ಮಾರ", "ಮಾರಿದ", "ಮಾರಿ")
_WASH = Verb("wash washes washed washing", "ತೊಳೆಯ", "ತೊಳೆದ", "ತೊಳೆಯಿರಿ")
_OPEN = Verb("open opens opened opening", "ತೆರೆಯ", "ತೆರೆದ", "ತೆರೆಯಿರಿ")
_CLOSE = Verb("close closes closed closing", "ಮುಚ್ಚ", "ಮುಚ್ಚಿದ", "ಮುಚ್ಚಿ")
_SWIM = Verb("swim swims swam swimming", "ಈಜ", "ಈಜಿದ", "ಈಜಿ")

_DEFINITE = tuple(Word(f"the {thing}", thing.accusative) for thing in THINGS)
_GOALS = tuple(Word(f"to {place}", place.dative) for place in PLACES + CITIES)
_WASHED = tuple(
    thing for thing in _DEFINITE if thing.english in ("the plate", "the shirt", "the sari")
)
# Each verb, its complements, and whether people do it every day.
_USES = (
    (_GO, _GOALS[: len(PLACES)], True),
    (_GO, _GOALS[len(PLACES) :], False),
    (_COME, _GOALS, False),
    (_EAT, FOODS, True),
    (_DRINK, DRINKS, True),
    (_LEARN, _LANGUAGES, True),
    (_SPEAK, _LANGUAGES, True),
    (_PLAY, _GAMES, True),
    (_READ, _TEXTS, True),
    (_WRITE, _TEXTS, True),
    (_LISTEN, tuple(Word(f"to {what}", what.kannada) for what in _SOUNDS), True),
    (_SING, _SOUNDS[:1], True),
    (_LOOK, tuple(Word(f"at {what}", what.kannada) for what in _SEEN), True),
    (_OPEN, _DOORS, True),
    (_CLOSE, _DOORS, True),
    (_WASH, _WASHED, True),
    (_SWIM, (Word("", ""),), True),
    (_BUY, _DEFINITE, False),
    (_BRING, _DEFINITE, False),
    (_SELL, _DEFINITE, False),
    (_SEARCH, tuple(Word(f"for {what}", what.kannada) for what in _DEFINITE), False),
    *(
        (Verb(what.english, "ಮಾಡ", "ಮಾಡಿದ", "ಮಾಡಿ"), (Word("", what.kannada),), True)
        for what in _DONE
    ),
)
ACTIONS = tuple(
    Action(verb, what.english, what.kannada, daily)
    for verb, objects, daily in _USES
    for what in objects
)
DAILY = tuple(action for action in ACTIONS if action.daily)
COME = tuple(action for action in ACTIONS if action.verb is _COME)
GO = tuple(action for action in ACTIONS if action.verb is _GO)
EAT_AND_DRINK = tuple(action for action in ACTIONS if action.verb in (_EAT, _DRINK))
