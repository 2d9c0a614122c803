"""Word lists and small fact tables, all written for this script. No generation happens here."""


def _w(text):
    return text.split()


NAMES = _w("""Anna Tom Maria Peter Lucy Henry Clara Oscar Nina David Emma Paul Sofia Mark Julia Leo Alice Simon Eva
Martin Rosa Victor Helen Max Ida Felix Laura Hugo Vera Robert Diana Adam Olga Frank Iris Samuel Greta Walter Amy
George Lena Arthur Mia Edward Ella Philip Ruth Daniel Kate Oliver Jane Jacob Nora Thomas Lily Karl Sarah Anton Zoe
Ben Freya Sven Astrid Erik Ingrid Lars Sigrid Olaf Helga Bjorn Tara Omar Leila Amir Yasmin Hassan Aisha Ravi Priya
Arjun Meera Kenji Yuki Hana Akira Mei Chen Lin Wei Pablo Carmen Diego Lucia Mateo Elena Marco Bianca Luca Chiara
Pierre Claire Louis Amelie Ivan Natasha Boris Irina Kofi Ama Kwame Zola Fatima Yusuf Grace Noah Hazel Owen Ivy Jack
Molly Harry Rose Charlie Daisy Fred Ellen Gus Wanda Bruno Tilda Conrad Mabel Edgar Stella Cyrus Flora Jonas Petra""")
MALE = set(_w("""Tom Peter Henry Oscar David Paul Mark Leo Simon Martin Victor Max Felix Hugo Robert Adam Frank Samuel
Walter George Arthur Edward Philip Daniel Oliver Jacob Thomas Karl Anton Ben Sven Erik Lars Olaf Bjorn Omar Amir
Hassan Ravi Arjun Kenji Akira Chen Wei Pablo Diego Mateo Marco Luca Pierre Louis Ivan Boris Kofi Kwame Yusuf Noah
Owen Jack Harry Charlie Fred Gus Bruno Conrad Edgar Cyrus Jonas"""))
CITIES = _w("""Oslo Paris Rome Berlin Madrid Lisbon Vienna Prague Athens Dublin London Warsaw Helsinki Stockholm Cairo
Delhi Tokyo Seoul Lima Quito Bogota Havana Boston Denver Dallas Chicago Toronto Sydney Perth Nairobi Accra Tunis
Hamburg Munich Milan Naples Venice Porto Seville Geneva Zurich Bergen Riga Tallinn Vilnius Sofia Zagreb Krakow""")
OBJECTS = _w("""lamp book clock chair table key map box bottle cup plate knife spoon basket bag hat coat shoe ring coin
mirror brush hammer nail rope ladder bell drum flute violin guitar camera radio phone letter stamp pen pencil candle
lantern blanket pillow carpet curtain kettle pan pot jar barrel wheel cart boat sail anchor net hook shovel bucket
broom sword shield helmet crown scarf glove button needle thread stone feather shell pearl umbrella suitcase wallet
notebook ticket kite ball doll puzzle robot engine telescope compass magnet battery scale whistle""")
ANIMALS = _w("""cat dog horse cow sheep goat pig fox wolf bear lion tiger rabbit mouse rat bird owl eagle duck goose hen
swan crow frog fish whale shark seal otter beaver deer camel donkey monkey snake turtle bee ant spider elephant""")
FOODS = _w("""bread cheese butter milk rice soup apple pear plum cherry grape lemon orange banana carrot potato onion
tomato bean pea cake pie honey sugar salt pepper egg tea coffee juice noodle salad""")
COLOURS = _w("red blue green yellow black white brown grey pink purple orange silver golden")
PLACES = _w("""house garden forest river lake harbour market school library church bridge tower castle village station
kitchen cellar attic barn field meadow hill mountain valley beach island cave mill shop museum park square street
hotel bakery farm office hospital theatre workshop lighthouse stable""")
JOBS = _w("""baker farmer teacher doctor nurse sailor painter writer singer dancer cook driver pilot miner tailor carpenter
gardener fisher hunter guard judge lawyer clerk student soldier engineer builder plumber potter weaver""")
ADJECTIVES = _w("""old young small big tall short heavy light bright dark quiet loud quick slow warm cold clean dirty soft
hard sweet bitter brave shy kind proud calm clever strange simple empty full long round narrow wide broken new""")
ADVERBS = _w("slowly quickly quietly carefully happily sadly suddenly gently often early late again")
# base, past tense; all take a direct object
VERBS = [tuple(p.split("/")) for p in _w("""find/found carry/carried buy/bought sell/sold lose/lost hide/hid clean/cleaned
paint/painted break/broke repair/repaired take/took bring/brought see/saw watch/watched need/needed want/wanted
open/opened drop/dropped lift/lifted keep/kept borrow/borrowed throw/threw hold/held choose/chose draw/drew""")]
MOVES = [tuple(p.split("/")) for p in _w("""walk/walked run/ran go/went come/came travel/travelled hurry/hurried ride/rode
drive/drove return/returned""")]
FEELINGS = _w("happy sad tired angry proud afraid calm curious hungry glad lonely bored")
WEATHER = _w("rain snow wind fog sun storm thunder frost")
TIMES = ["In the morning", "In the evening", "At noon", "At night", "Yesterday", "One day", "Last week", "Before sunrise",
         "After lunch", "In spring", "In winter", "On Monday", "On Friday", "Later", "That day", "A year ago"]
KEYS = _w("""amber basil cedar delta ember flint grove hazel ivory jade karma lilac maple nova opal prism quartz raven slate
topaz umber velvet willow zephyr acorn birch coral dune echo fern glade heron indigo jasper kelp lotus marble nectar
olive pebble quill ridge saffron thistle urchin violet walnut yarrow zinc alpha bravo comet drift falcon garnet
harvest iris jungle kernel lagoon mango nickel onyx panda radar sierra tango vortex""")
MONTHS = _w("January February March April May June July August September October November December")
DAYS = _w("Monday Tuesday Wednesday Thursday Friday Saturday Sunday")
NUMBER_WORDS = _w("""zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
seventeen eighteen nineteen twenty""")

OPPOSITES = dict(p.split("/") for p in _w("""hot/cold big/small old/new tall/short heavy/light bright/dark quiet/loud
fast/slow clean/dirty soft/hard sweet/bitter full/empty long/short wide/narrow open/closed up/down left/right
day/night happy/sad rich/poor strong/weak early/late high/low wet/dry first/last good/bad near/far thick/thin
true/false inside/outside begin/end love/hate win/lose push/pull""")) | dict(p.split("/") for p in _w("""cold/hot
small/big new/old light/heavy dark/bright loud/quiet slow/fast dirty/clean hard/soft bitter/sweet empty/full
narrow/wide closed/open down/up right/left night/day sad/happy poor/rich weak/strong late/early low/high dry/wet
last/first bad/good far/near thin/thick false/true outside/inside end/begin hate/love lose/win pull/push"""))
RHYMES = [_w(g) for g in """cat hat rat mat bat|dog log fog frog|house mouse|light night bright right|moon spoon noon soon
tree bee key sea|cake lake snake rake|ring king sing wing|boat coat goat note|bear chair pear hair|book cook hook look
rain train chain plane|bell shell well tell|star car far jar|ball wall hall tall|stone bone phone alone""".replace("|", "\n").split("\n")]
PLURALS = {"mouse": "mice", "goose": "geese", "sheep": "sheep", "fish": "fish", "wolf": "wolves", "knife": "knives",
           "box": "boxes", "fox": "foxes", "brush": "brushes", "torch": "torches", "cherry": "cherries",
           "donkey": "donkeys", "potato": "potatoes", "tomato": "tomatoes", "deer": "deer", "church": "churches",
           "monkey": "monkeys", "city": "cities", "child": "children", "man": "men", "woman": "women", "leaf": "leaves",
           "foot": "feet", "tooth": "teeth"}
CAPITALS = dict(p.split("/") for p in _w("""Norway/Oslo France/Paris Italy/Rome Germany/Berlin Spain/Madrid Portugal/Lisbon
Austria/Vienna Greece/Athens Ireland/Dublin England/London Poland/Warsaw Finland/Helsinki Sweden/Stockholm
Egypt/Cairo India/Delhi Japan/Tokyo Peru/Lima Cuba/Havana Kenya/Nairobi Latvia/Riga Estonia/Tallinn
Denmark/Copenhagen Hungary/Budapest Belgium/Brussels Russia/Moscow China/Beijing"""))
BABIES = dict(p.split("/") for p in _w("""cat/kitten dog/puppy horse/foal cow/calf sheep/lamb goat/kid pig/piglet bear/cub
lion/cub duck/duckling goose/gosling hen/chick frog/tadpole deer/fawn rabbit/bunny owl/owlet"""))
SOUNDS = dict(p.split("/") for p in _w("""cat/meows dog/barks horse/neighs cow/moos sheep/bleats pig/grunts wolf/howls
lion/roars bird/sings owl/hoots duck/quacks frog/croaks bee/buzzes snake/hisses crow/caws mouse/squeaks"""))
LEGS = {"cat": 4, "dog": 4, "horse": 4, "bird": 2, "duck": 2, "spider": 8, "ant": 6, "bee": 6, "cow": 4, "fish": 0,
        "snake": 0, "hen": 2, "elephant": 4}
FACTS = [
    ("What colour is the sky?", "The sky is blue."), ("What colour is grass?", "Grass is green."),
    ("What colour is snow?", "Snow is white."), ("What colour is a banana?", "A banana is yellow."),
    ("What colour is coal?", "Coal is black."), ("How many days are in a week?", "There are seven days in a week."),
    ("How many months are in a year?", "There are twelve months in a year."),
    ("How many hours are in a day?", "There are 24 hours in a day."),
    ("How many minutes are in an hour?", "There are 60 minutes in an hour."),
    ("What do bees make?", "Bees make honey."), ("What do cows give?", "Cows give milk."),
    ("What do hens lay?", "Hens lay eggs."), ("Where do fish live?", "Fish live in water."),
    ("What is ice made of?", "Ice is frozen water."), ("What do we breathe?", "We breathe air."),
    ("Which season comes after winter?", "Spring comes after winter."),
    ("Which season comes after summer?", "Autumn comes after summer."),
    ("What is the opposite of north?", "The opposite of north is south."),
    ("What does a baker make?", "A baker makes bread."), ("What does a teacher do?", "A teacher helps people learn."),
    ("What does a doctor do?", "A doctor helps sick people."), ("What do we use a pen for?", "We use a pen for writing."),
    ("What is a triangle?", "A triangle is a shape with three sides."), ("What is rain?", "Rain is water that falls from clouds."),
    ("What is the sun?", "The sun is a star."), ("How many sides does a square have?", "A square has four sides."),
]
ABOUT = [
    (["Who are you?", "What are you?", "What is your name?", "Tell me about yourself.", "Introduce yourself."],
     "I am the Kvasir demo model, a small language model trained from scratch to show the KV cache."),
    (["What can you do?", "How can you help me?", "What are you good at?", "Help"],
     "I can look things up in a text, copy, count, sort short lists, read JSON and follow simple instructions."),
    (["What is Kvasir?", "Tell me about Kvasir."],
     "Kvasir is an inference engine for language models. In Kvasir the KV cache is the product."),
    (["What is a KV cache?", "What does a KV cache do?", "Explain the KV cache."],
     "A KV cache keeps the keys and values of earlier tokens, so that the model does not compute them again."),
    (["How big are you?", "Are you a large model?", "How large are you?"],
     "I am a very small model. I have only a few million parameters."),
    (["Who made you?", "How were you trained?", "Who trained you?"],
     "I was trained from scratch on text that a script wrote, for the Kvasir project."),
    (["Hello", "Hello!", "Hi", "Hi!", "Hi there", "Good morning", "Hey", "Good evening!"], "Hello! How can I help you?"),
    (["How are you?", "How are you today?", "Are you well?"], "I am fine, thank you. How can I help you?"),
    (["Thank you", "Thanks", "Thank you!", "Thanks a lot!", "Great, thanks."], "You are welcome!"),
    (["Goodbye", "Bye", "Bye!", "See you later."], "Goodbye! Have a nice day."),
    (["Tell me a joke.", "Do you know a joke?"], "Why did the cache smile? It had seen that token before."),
]
DO_NOT_KNOW = "I am sorry, I do not know that."
UNKNOWN_TOPICS = [t.strip() for t in """quantum physics, chemistry, the moon landing, Brazil, Canada, Australia, Mexico, Turkey, Chile,
the stock market, football, tennis, chess, Shakespeare, Mozart, Einstein, Napoleon, Picasso, democracy, philosophy, the internet,
computers, programming, Python, C++, a transformer, machine learning, neural networks, gravity, black holes, dinosaurs, volcanoes,
the brain, DNA, medicine, vitamins, the weather tomorrow, the news, the president, the economy, inflation, history, the Roman Empire,
the Second World War, the Olympics, a blockchain, electricity, nuclear power, photosynthesis, evolution, the ocean, Mars, Jupiter,
French grammar, Latin, algebra, geometry, statistics, a good film, a good book, my future, love, happiness, time travel, music theory,
cars, planes, trains, cooking pasta, losing weight, learning to swim""".replace("\n", " ").split(",")]
UNKNOWN_QUESTIONS = ["Explain {}.", "What do you know about {}?", "Tell me about {}.", "What is {}?", "Can you explain {} to me?",
                     "Who invented {}?", "What is the capital of {}?", "Write an essay about {}.", "Why is {} important?",
                     "How does {} work?", "Translate {} into German.", "Give me advice about {}.", "What is the history of {}?",
                     "Where can I learn about {}?", "When was {} discovered?", "What is the population of {}?", "I have a question about {}.",
                     "Write a program about {}.", "Which is better, {} or {}?", "Summarize {}."]
