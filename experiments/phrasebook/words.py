"""The words of the phrasebook, with their irregular forms."""

from forms import Holder, Noun, Place, Subject, Word

__all__ = [
    "CITIES",
    "DAYS",
    "DRINKS",
    "FOODS",
    "GREETINGS",
    "HOURS",
    "INDOORS",
    "MEALS",
    "NAMED",
    "NAMES",
    "NUMBERS",
    "PHRASES",
    "PLACES",
    "PRONOUNS",
    "PROFESSIONS",
    "QUALITIES",
    "RELATIVES",
    "SERVED",
    "SIBLINGS",
    "THINGS",
    "WHOSE",
    "pairs",
]


def pairs(text: str) -> tuple[Word, ...]:
    """Parses "english = kannada" lines; a line may have several, separated by commas."""
    cells = (cell.split("=") for line in text.splitlines() for cell in line.split(",") if cell)
    return tuple(Word(english.strip(), kannada.strip()) for english, kannada in cells)


# Fixed phrases.
PHRASES = pairs("""yes = ಹೌದು, no = ಇಲ್ಲ, please = ದಯವಿಟ್ಟು, best wishes = ಶುಭಾಶಯಗಳು
nice to meet you = ನಿಮ್ಮನ್ನು ಭೇಟಿಯಾಗಿ ಸಂತೋಷವಾಯಿತು, good night to all = ಎಲ್ಲರಿಗೂ ಶುಭ ರಾತ್ರಿ
hello to all = ಎಲ್ಲರಿಗೂ ನಮಸ್ಕಾರ, thank you all = ಎಲ್ಲರಿಗೂ ಧನ್ಯವಾದಗಳು""")

# Said alone or to somebody by name.
GREETINGS = pairs("""hello = ನಮಸ್ಕಾರ, namaste = ನಮಸ್ತೆ, good morning = ಶುಭೋದಯ
good afternoon = ಶುಭ ಮಧ್ಯಾಹ್ನ, good evening = ಶುಭ ಸಂಜೆ, good night = ಶುಭ ರಾತ್ರಿ
thank you = ಧನ್ಯವಾದಗಳು, thank you very much = ತುಂಬಾ ಧನ್ಯವಾದಗಳು, welcome = ಸ್ವಾಗತ
sorry = ಕ್ಷಮಿಸಿ, congratulations = ಅಭಿನಂದನೆಗಳು, how are you = ನೀವು ಹೇಗಿದ್ದೀರಿ
happy birthday = ಹುಟ್ಟುಹಬ್ಬದ ಶುಭಾಶಯಗಳು, happy new year = ಹೊಸ ವರ್ಷದ ಶುಭಾಶಯಗಳು
happy journey = ಶುಭ ಪ್ರಯಾಣ, see you tomorrow = ನಾಳೆ ಸಿಗೋಣ
please sit down = ದಯವಿಟ್ಟು ಕುಳಿತುಕೊಳ್ಳಿ, please come in = ದಯವಿಟ್ಟು ಒಳಗೆ ಬನ್ನಿ""")

_MEN = pairs("""prathamesh = ಪ್ರಥಮೇಶ್, ramesh = ರಮೇಶ್, suresh = ಸುರೇಶ್, mahesh = ಮಹೇಶ್
ganesh = ಗಣೇಶ್, rajesh = ರಾಜೇಶ್, kiran = ಕಿರಣ್, arun = ಅರುಣ್, rahul = ರಾಹುಲ್, anil = ಅನಿಲ್
ravi = ರವಿ, mohan = ಮೋಹನ್, nagaraj = ನಾಗರಾಜ್, chetan = ಚೇತನ್, anand = ಆನಂದ್, vijay = ವಿಜಯ್
sanjay = ಸಂಜಯ್, prakash = ಪ್ರಕಾಶ್, manjunath = ಮಂಜುನಾಥ್, shankar = ಶಂಕರ್, vinay = ವಿನಯ್
naveen = ನವೀನ್, john = ಜಾನ್, david = ಡೇವಿಡ್, peter = ಪೀಟರ್, thomas = ಥಾಮಸ್, imran = ಇಮ್ರಾನ್""")
_WOMEN = pairs("""lakshmi = ಲಕ್ಷ್ಮಿ, gita = ಗೀತಾ, sita = ಸೀತಾ, radha = ರಾಧಾ, meera = ಮೀರಾ
kavita = ಕವಿತಾ, sunita = ಸುನೀತಾ, anita = ಅನಿತಾ, priya = ಪ್ರಿಯಾ, deepa = ದೀಪಾ, rekha = ರೇಖಾ
suma = ಸುಮಾ, usha = ಉಷಾ, asha = ಆಶಾ, lata = ಲತಾ, shobha = ಶೋಭಾ, pooja = ಪೂಜಾ
nandini = ನಂದಿನಿ, kavya = ಕಾವ್ಯ, divya = ದಿವ್ಯ, shanti = ಶಾಂತಿ, savita = ಸವಿತಾ, mary = ಮೇರಿ
sara = ಸಾರಾ, fatima = ಫಾತಿಮಾ, maria = ಮರಿಯಾ""")
NAMES = (
    *(Subject(name.english, name.kannada, 3, True) for name in _MEN),
    *(Subject(name.english, name.kannada, 4, True, True) for name in _WOMEN),
)

# English subject, object and possessive; Kannada nominative, genitive and dative.
_PERSONS = (
    ("i", "me", "my", "ನಾನು", "ನನ್ನ", "ನನಗೆ"),
    ("we", "us", "our", "ನಾವು", "ನಮ್ಮ", "ನಮಗೆ"),
    ("you", "you", "your", "ನೀವು", "ನಿಮ್ಮ", "ನಿಮಗೆ"),
    ("he", "him", "his", "ಅವನು", "ಅವನ", "ಅವನಿಗೆ"),
    ("she", "her", "her", "ಅವಳು", "ಅವಳ", "ಅವಳಿಗೆ"),
    ("they", "them", "their", "ಅವರು", "ಅವರ", "ಅವರಿಗೆ"),
)
PRONOUNS = tuple(
    Holder(
        english, kannada, i, i in (3, 4), i == 4, genitive=genitive, dative=dative, object=object_
    )
    for i, (english, object_, _, kannada, genitive, dative) in enumerate(_PERSONS)
)

# English; Kannada nominative, genitive, dative and person. Elders are spoken of with respect.
_KIN = (
    ("father", "ತಂದೆ", "ತಂದೆಯ", "ತಂದೆಗೆ", 5),
    ("mother", "ತಾಯಿ", "ತಾಯಿಯ", "ತಾಯಿಗೆ", 5),
    ("grandfather", "ಅಜ್ಜ", "ಅಜ್ಜನ", "ಅಜ್ಜನಿಗೆ", 5),
    ("grandmother", "ಅಜ್ಜಿ", "ಅಜ್ಜಿಯ", "ಅಜ್ಜಿಗೆ", 5),
    ("elder brother", "ಅಣ್ಣ", "ಅಣ್ಣನ", "ಅಣ್ಣನಿಗೆ", 3),
    ("younger brother", "ತಮ್ಮ", "ತಮ್ಮನ", "ತಮ್ಮನಿಗೆ", 3),
    ("elder sister", "ಅಕ್ಕ", "ಅಕ್ಕನ", "ಅಕ್ಕನಿಗೆ", 4),
    ("younger sister", "ತಂಗಿ", "ತಂಗಿಯ", "ತಂಗಿಗೆ", 4),
    ("son", "ಮಗ", "ಮಗನ", "ಮಗನಿಗೆ", 3),
    ("daughter", "ಮಗಳು", "ಮಗಳ", "ಮಗಳಿಗೆ", 4),
    ("friend", "ಸ್ನೇಹಿತ", "ಸ್ನೇಹಿತನ", "ಸ್ನೇಹಿತನಿಗೆ", 3),
)
# "my father" to "their friend", in the order of the pronouns.
RELATIVES = tuple(
    Holder(
        f"{whose} {english}",
        f"{of} {kannada}",
        person,
        True,
        person == 4 or english.endswith("mother"),
        genitive=f"{of} {genitive}",
        dative=f"{of} {dative}",
        object=f"{whose} {english}",
    )
    for _, _, whose, _, of, _ in _PERSONS
    for english, kannada, genitive, dative, person in _KIN
)
SIBLINGS = pairs("""elder brothers = ಅಣ್ಣಂದಿರು, younger brothers = ತಮ್ಮಂದಿರು
elder sisters = ಅಕ್ಕಂದಿರು, younger sisters = ತಂಗಿಯರು, children = ಮಕ್ಕಳು, friends = ಸ್ನೇಹಿತರು""")
# Professions of a man, of a woman, and of a man spoken of with respect.
PROFESSIONS = tuple(
    pairs(text)
    for text in (
        """a teacher = ಶಿಕ್ಷಕ, a doctor = ವೈದ್ಯ, a singer = ಗಾಯಕ, a writer = ಲೇಖಕ
        an artist = ಕಲಾವಿದ, a lawyer = ವಕೀಲ, an engineer = ಎಂಜಿನಿಯರ್""",
        """a teacher = ಶಿಕ್ಷಕಿ, a doctor = ವೈದ್ಯೆ, a singer = ಗಾಯಕಿ, a writer = ಲೇಖಕಿ
        an artist = ಕಲಾವಿದೆ, a lawyer = ವಕೀಲೆ, an engineer = ಎಂಜಿನಿಯರ್""",
        """a teacher = ಶಿಕ್ಷಕರು, a doctor = ವೈದ್ಯರು, a singer = ಗಾಯಕರು, a writer = ಲೇಖಕರು
        an artist = ಕಲಾವಿದರು, a lawyer = ವಕೀಲರು, an engineer = ಎಂಜಿನಿಯರ್""",
    )
)

# From one on; the first twelve are also the hours.
NUMBERS = pairs("""one = ಒಂದು, two = ಎರಡು, three = ಮೂರು, four = ನಾಲ್ಕು, five = ಐದು, six = ಆರು
seven = ಏಳು, eight = ಎಂಟು, nine = ಒಂಬತ್ತು, ten = ಹತ್ತು, eleven = ಹನ್ನೊಂದು, twelve = ಹನ್ನೆರಡು
thirteen = ಹದಿಮೂರು, fourteen = ಹದಿನಾಲ್ಕು, fifteen = ಹದಿನೈದು, sixteen = ಹದಿನಾರು
seventeen = ಹದಿನೇಳು, eighteen = ಹದಿನೆಂಟು, nineteen = ಹತ್ತೊಂಬತ್ತು, twenty = ಇಪ್ಪತ್ತು
thirty = ಮೂವತ್ತು, forty = ನಲವತ್ತು, fifty = ಐವತ್ತು, sixty = ಅರವತ್ತು, seventy = ಎಪ್ಪತ್ತು
eighty = ಎಂಬತ್ತು, ninety = ತೊಂಬತ್ತು, one hundred = ನೂರು""")
DAYS = pairs("""sunday = ಭಾನುವಾರ, monday = ಸೋಮವಾರ, tuesday = ಮಂಗಳವಾರ, wednesday = ಬುಧವಾರ
thursday = ಗುರುವಾರ, friday = ಶುಕ್ರವಾರ, saturday = ಶನಿವಾರ""")
HOURS = tuple(
    Word(f"{hour} {part}", f"{kannada} {hour.kannada} ಗಂಟೆ")
    for part, kannada, first, last in (
        ("in the morning", "ಬೆಳಿಗ್ಗೆ", 5, 11),
        ("in the afternoon", "ಮಧ್ಯಾಹ್ನ", 1, 3),
        ("in the evening", "ಸಂಜೆ", 4, 7),
        ("at night", "ರಾತ್ರಿ", 8, 11),
    )
    for hour in NUMBERS[first - 1 : last]
)

PLACES = (
    Place("the house", "ಮನೆ", "ಮನೆಯ", "ಮನೆಗೆ"),
    Place("the school", "ಶಾಲೆ", "ಶಾಲೆಯ", "ಶಾಲೆಗೆ"),
    Place("the shop", "ಅಂಗಡಿ", "ಅಂಗಡಿಯ", "ಅಂಗಡಿಗೆ"),
    Place("the office", "ಕಚೇರಿ", "ಕಚೇರಿಯ", "ಕಚೇರಿಗೆ"),
    Place("the library", "ಗ್ರಂಥಾಲಯ", "ಗ್ರಂಥಾಲಯದ", "ಗ್ರಂಥಾಲಯಕ್ಕೆ"),
    Place("the college", "ಕಾಲೇಜು", "ಕಾಲೇಜಿನ", "ಕಾಲೇಜಿಗೆ"),
    Place("the temple", "ದೇವಸ್ಥಾನ", "ದೇವಸ್ಥಾನದ", "ದೇವಸ್ಥಾನಕ್ಕೆ"),
    Place("the hospital", "ಆಸ್ಪತ್ರೆ", "ಆಸ್ಪತ್ರೆಯ", "ಆಸ್ಪತ್ರೆಗೆ"),
    Place("the bank", "ಬ್ಯಾಂಕು", "ಬ್ಯಾಂಕಿನ", "ಬ್ಯಾಂಕಿಗೆ"),
    Place("the market", "ಮಾರುಕಟ್ಟೆ", "ಮಾರುಕಟ್ಟೆಯ", "ಮಾರುಕಟ್ಟೆಗೆ"),
    Place("the factory", "ಕಾರ್ಖಾನೆ", "ಕಾರ್ಖಾನೆಯ", "ಕಾರ್ಖಾನೆಗೆ"),
    Place("the village", "ಹಳ್ಳಿ", "ಹಳ್ಳಿಯ", "ಹಳ್ಳಿಗೆ"),
    Place("the city", "ನಗರ", "ನಗರದ", "ನಗರಕ್ಕೆ"),
    Place("the garden", "ತೋಟ", "ತೋಟದ", "ತೋಟಕ್ಕೆ"),
    Place("the field", "ಹೊಲ", "ಹೊಲದ", "ಹೊಲಕ್ಕೆ"),
    Place("the railway station", "ರೈಲು ನಿಲ್ದಾಣ", "ರೈಲು ನಿಲ್ದಾಣದ", "ರೈಲು ನಿಲ್ದಾಣಕ್ಕೆ"),
)
INDOORS = PLACES[:9]
CITIES = (
    Place("bangalore", "ಬೆಂಗಳೂರು", "ಬೆಂಗಳೂರಿನ", "ಬೆಂಗಳೂರಿಗೆ"),
    Place("mysore", "ಮೈಸೂರು", "ಮೈಸೂರಿನ", "ಮೈಸೂರಿಗೆ"),
    Place("mangalore", "ಮಂಗಳೂರು", "ಮಂಗಳೂರಿನ", "ಮಂಗಳೂರಿಗೆ"),
    Place("tumkur", "ತುಮಕೂರು", "ತುಮಕೂರಿನ", "ತುಮಕೂರಿಗೆ"),
    Place("hubli", "ಹುಬ್ಬಳ್ಳಿ", "ಹುಬ್ಬಳ್ಳಿಯ", "ಹುಬ್ಬಳ್ಳಿಗೆ"),
    Place("belgaum", "ಬೆಳಗಾವಿ", "ಬೆಳಗಾವಿಯ", "ಬೆಳಗಾವಿಗೆ"),
    Place("udupi", "ಉಡುಪಿ", "ಉಡುಪಿಯ", "ಉಡುಪಿಗೆ"),
    Place("hampi", "ಹಂಪಿ", "ಹಂಪಿಯ", "ಹಂಪಿಗೆ"),
    Place("delhi", "ದೆಹಲಿ", "ದೆಹಲಿಯ", "ದೆಹಲಿಗೆ"),
    Place("hassan", "ಹಾಸನ", "ಹಾಸನದ", "ಹಾಸನಕ್ಕೆ"),
)

THINGS = (
    Noun("book", "ಪುಸ್ತಕ", "ಪುಸ್ತಕವನ್ನು", "ಪುಸ್ತಕದ"),
    Noun("pen", "ಲೇಖನಿ", "ಲೇಖನಿಯನ್ನು", "ಲೇಖನಿಯ"),
    Noun("bag", "ಚೀಲ", "ಚೀಲವನ್ನು", "ಚೀಲದ"),
    Noun("box", "ಪೆಟ್ಟಿಗೆ", "ಪೆಟ್ಟಿಗೆಯನ್ನು", "ಪೆಟ್ಟಿಗೆಯ"),
    Noun("chair", "ಕುರ್ಚಿ", "ಕುರ್ಚಿಯನ್ನು", "ಕುರ್ಚಿಯ"),
    Noun("table", "ಮೇಜು", "ಮೇಜನ್ನು", "ಮೇಜಿನ"),
    Noun("clock", "ಗಡಿಯಾರ", "ಗಡಿಯಾರವನ್ನು", "ಗಡಿಯಾರದ"),
    Noun("lamp", "ದೀಪ", "ದೀಪವನ್ನು", "ದೀಪದ"),
    Noun("picture", "ಚಿತ್ರ", "ಚಿತ್ರವನ್ನು", "ಚಿತ್ರದ"),
    Noun("flower", "ಹೂವು", "ಹೂವನ್ನು", "ಹೂವಿನ"),
    Noun("umbrella", "ಕೊಡೆ", "ಕೊಡೆಯನ್ನು", "ಕೊಡೆಯ"),
    Noun("shirt", "ಅಂಗಿ", "ಅಂಗಿಯನ್ನು", "ಅಂಗಿಯ"),
    Noun("sari", "ಸೀರೆ", "ಸೀರೆಯನ್ನು", "ಸೀರೆಯ"),
    Noun("plate", "ತಟ್ಟೆ", "ತಟ್ಟೆಯನ್ನು", "ತಟ್ಟೆಯ"),
)
FOODS = pairs("""rice = ಅನ್ನ, dosa = ದೋಸೆ, idli = ಇಡ್ಲಿ, chapati = ಚಪಾತಿ, vada = ವಡೆ, puri = ಪೂರಿ
upma = ಉಪ್ಪಿಟ್ಟು, fish = ಮೀನು, fruit = ಹಣ್ಣು, curd rice = ಮೊಸರನ್ನ, bananas = ಬಾಳೆಹಣ್ಣು
mangoes = ಮಾವಿನ ಹಣ್ಣು""")
DRINKS = pairs("""water = ನೀರು, milk = ಹಾಲು, tea = ಚಹಾ, coffee = ಕಾಫಿ, buttermilk = ಮಜ್ಜಿಗೆ
coconut water = ಎಳನೀರು, fruit juice = ಹಣ್ಣಿನ ರಸ""")
# Without the ending for "is" or "is not".
QUALITIES = pairs("""tasty = ರುಚಿಯಾಗಿ, very tasty = ತುಂಬಾ ರುಚಿಯಾಗಿ, hot = ಬಿಸಿಯಾಗಿ
very hot = ತುಂಬಾ ಬಿಸಿಯಾಗಿ, sweet = ಸಿಹಿಯಾಗಿ, very sweet = ತುಂಬಾ ಸಿಹಿಯಾಗಿ""")
MEALS = FOODS + DRINKS
SERVED = tuple(meal for meal in MEALS if meal.english not in ("bananas", "mangoes"))
WHOSE = tuple(Word(whose, kannada) for _, _, whose, _, kannada, _ in _PERSONS)
NAMED = tuple(word for word in WHOSE if word.english != "our")
