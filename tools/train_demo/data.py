"""Seeded generators of everything the demo model is trained and measured on.

An *episode* is a list of (user, answer) turns about one context: a haystack followed by many questions, so that almost
every answer token carries a look-up signal. A training row is one chat of episodes, exactly T tokens long.
Held-out material: whatever `Gen.allowed` hashes into the held-out eighth (keys, pass keys, name + statement pairs, copied texts)
is never generated for training and is all that is generated for evaluation.
"""
import json
import random
import zlib

from words import *  # noqa: F403

HELD_OUT_SHARE = 8


def a(word):
    return ("an " if word[0] in "aeiou" else "a ") + word


def cap(text):
    return text[0].upper() + text[1:]


def join(items):
    items = list(items)
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]


def plural(noun):
    return PLURALS.get(noun, noun + "es" if noun.endswith(("s", "x", "sh", "ch")) else noun + "s")


def approx_tokens(text):
    """Close enough for budgets: words, digits and punctuation."""
    return int(len(text.split()) * 1.12) + sum(text.count(c) for c in ".,:\"'-?{}") + sum(c.isdigit() for c in text)


class Gen:
    def __init__(self, seed, held_out=False):
        self.r = random.Random(seed)
        self.held_out = held_out
        self.fresh()

    def fresh(self):
        """Forget which keys and names the current chat has used."""
        self.used = set()
        self.plain_passkey_used = False

    # -- small choices -------------------------------------------------------------------------------------------------
    def pick(self, items):
        return items[int(self.r.random() * len(items))]

    def allowed(self, text):
        return (zlib.crc32(text.encode()) % HELD_OUT_SHARE == 0) == self.held_out

    def unique(self, make):
        """A value of make() that is on our side of the split and new in this chat."""
        while True:
            value = make()
            if value not in self.used and self.allowed(value):
                self.used.add(value)
                return value

    def digits(self, low=3, high=6):
        n = self.r.randint(low, high)
        return str(self.r.randint(10 ** (n - 1), 10 ** n - 1))

    def syllables(self, low=2, high=3):
        return "".join(self.pick("bdfgklmnprstvz") + self.pick("aeiou") + (self.pick("lnrsmk") if self.r.random() < .3 else "")
                       for _ in range(self.r.randint(low, high)))

    def odd_word(self):
        """Letters that form no known word, so that copying does not depend on the vocabulary."""
        return "".join(self.pick("abcdefghijklmnopqrstuvwxyzaeiou") for _ in range(self.r.randint(2, 7)))

    def name(self):
        kind = self.r.random()
        if kind > .92:
            return cap(self.odd_word())
        if kind < .7:
            return self.pick(NAMES)
        if kind < .85:
            return self.pick(NAMES) + " " + cap(self.syllables())
        return cap(self.syllables())

    def new_name(self):
        for _ in range(50):
            name = self.name()
            if name not in self.used:
                break
        else:
            name = self.pick(NAMES) + " " + cap(self.syllables(2, 4))
        self.used.add(name)
        return name

    def key(self):
        kind = self.r.random()
        if kind < .6:
            return f"{self.pick(KEYS)}-{self.r.randint(10, 99)}"
        if kind < .75:
            return f"{self.pick(KEYS)}-{self.pick(KEYS)}"
        if kind < .9:
            return f"{self.pick(COLOURS)} {self.pick(OBJECTS)}"
        return f"{self.syllables()}-{self.r.randint(1, 9)}"

    def value(self, kind):
        if kind == "digits":
            return self.digits()
        if kind == "word":
            return self.pick(OBJECTS + ANIMALS + FOODS)
        return f"{self.pick(ADJECTIVES)} {self.pick(ANIMALS)}"

    # -- prose ---------------------------------------------------------------------------------------------------------
    def noun_phrase(self):
        noun = self.pick(self.pick((OBJECTS, ANIMALS, JOBS)))
        if self.r.random() < .5:
            noun = self.pick(ADJECTIVES + COLOURS) + " " + noun
        return "the " + noun if self.r.random() < .5 else a(noun)

    def clause(self, who=None):
        r, p = self.r, self.pick
        who = who or (p(NAMES) if r.random() < .4 else "the " + p(JOBS + ANIMALS))
        kind = r.randrange(6)
        if kind == 0:
            return f"{who} {p(VERBS)[1]} {self.noun_phrase()} near the {p(PLACES)}"
        if kind == 1:
            return f"{who} {p(MOVES)[1]} to the {p(PLACES)} {p(ADVERBS)}"
        if kind == 2:
            return f"{who} was {p(FEELINGS)} because of the {p(WEATHER)}"
        if kind == 3:
            return f"{who} {p(VERBS)[1]} {self.noun_phrase()}"
        if kind == 4:
            return f"{who} had {a(p(ADJECTIVES))} {p(OBJECTS)} and {a(p(COLOURS))} {p(OBJECTS)}"
        return f"{who} {p(MOVES)[1]} from the {p(PLACES)} to the {p(PLACES)}"

    def sentence(self):
        r, p = self.r, self.pick
        kind = r.randrange(8)
        if kind == 0:
            return f"{p(TIMES)}, {self.clause()}."
        if kind == 1:
            return cap(f"{self.clause()}, and {self.clause()}.")
        if kind == 2:
            return f"The {p(PLACES)} was {p(ADJECTIVES)} and the {p(WEATHER)} was {p(ADJECTIVES)}."
        if kind == 3:
            return f"There {p(('were', 'are'))} {p(NUMBER_WORDS[2:13])} {plural(p(OBJECTS + ANIMALS))} in the {p(PLACES)}."
        if kind == 4:
            return cap(f"{p(FOODS)} and {p(FOODS)} were on the table.")
        return cap(f"{self.clause()}.")

    def story(self, subject=None, sentences=None):
        """A short paragraph with one hero, agreement of pronouns, and an end."""
        r, p = self.r, self.pick
        name = p(NAMES)
        he, his = ("he", "his") if name in MALE else ("she", "her")
        thing = p(OBJECTS)
        if subject in JOBS:
            hero, job = name, subject
        else:
            hero, job = name, p(JOBS)
        if subject in ANIMALS:
            opening = f"{p(('Once there was', 'Long ago there was'))} {a(p(ADJECTIVES))} {subject}. It lived near the {p(PLACES)}."
            hero, he, his, thing = f"the {subject}", "it", "its", p(FOODS)
        else:
            opening = f"{p(('Once there was', 'There was'))} {a(job)} called {hero}. {cap(he)} lived near the {p(PLACES)}."
            thing = subject if subject in OBJECTS else thing
        colour = p(COLOURS)
        middle = [
            f"{p(TIMES)}, {hero} {p(MOVES)[1]} to the {p(PLACES)}.",
            f"There {he} found {a(colour + ' ' + thing)}.",
            f"{cap(he)} was {p(FEELINGS)}, because the {thing} was {p(ADJECTIVES)}.",
            f"{cap(he)} showed the {thing} to {p(NAMES)}.",
            f"Then the {p(WEATHER)} came, and {he} {p(MOVES)[1]} home.",
            f"{cap(he)} put the {thing} in {his} {p(('bag', 'box', 'basket', 'house'))}.",
        ]
        n = sentences or r.randint(3, 5)
        keep = sorted(r.sample(range(len(middle)), min(n, len(middle))) + [1])
        body = [middle[i] for i in dict.fromkeys(keep)]
        end = p((f"In the end {hero} was {p(('happy', 'glad', 'proud'))}.", f"{cap(he)} never forgot that day.",
                 f"After that, {hero} slept well."))
        return " ".join([opening] + body + [end])

    def filler(self, tokens):
        out, n = [], 0
        while n < tokens:
            s = self.sentence()
            n += approx_tokens(s)
            out.append(s)
        return out

    def scatter(self, facts, tokens):
        """Facts at random places in about `tokens` tokens of prose."""
        prose = self.filler(max(0, tokens - sum(approx_tokens(f) for f in facts)))
        slots = sorted(self.r.randint(0, len(prose)) for _ in facts)
        out, at = [], 0
        for slot, fact in zip(slots, facts):
            out += prose[at:slot] + [fact]
            at = slot
        out += prose[at:]
        if len(out) > 12 and self.r.random() < .5:  # paragraphs
            step = self.r.randint(4, 9)
            return "\n\n".join(" ".join(out[i:i + step]) for i in range(0, len(out), step))
        return " ".join(out)

    def statement(self):
        r, p = self.r, self.pick
        kind = r.randrange(6)
        if kind == 0:
            return f"The {p(OBJECTS)} is {p(ADJECTIVES)}."
        if kind == 1:
            return f"I lost my {p(COLOURS)} {p(OBJECTS)}."
        if kind == 2:
            return f"We need {p(NUMBER_WORDS[2:])} {plural(p(OBJECTS))}."
        if kind == 3:
            return f"The {p(ANIMALS)} is in the {p(PLACES)}."
        if kind == 4:
            return f"I like {p(FOODS)} and {p(FOODS)}."
        return f"Meet me at the {p(PLACES)} on {p(DAYS)}."

    # -- look-up episodes: each returns (facts or lines, [(question, answer)]) --------------------------------------
    def passkeys(self, n):
        facts, questions = [], []
        for _ in range(n):
            number = self.unique(lambda: self.digits(4, 6))
            if not self.plain_passkey_used and self.r.random() < (.5 if n > 1 else .9):
                self.plain_passkey_used = True
                facts.append(f"The pass key is {number}. Remember it.")
                questions.append((self.pick(("What is the pass key?", "Tell me the pass key.", "What is the pass key? Answer with the number.")), number))
            else:
                place = self.unique(lambda: f"the {self.pick(PLACES)}" if self.r.random() < .4 else
                                    f"the {self.pick(ADJECTIVES + COLOURS)} {self.pick(PLACES)}")
                word = self.pick(("pass key", "secret code", "door code"))
                facts.append(f"The {word} of {place} is {number}." + (" Remember it." if self.r.random() < .5 else ""))
                questions.append((f"What is the {word} of {place}?", number))
        return facts, questions

    def quotes(self, n):
        facts, questions = [], []
        for _ in range(n):
            name = self.new_name()
            text = self.unique(lambda: self.statement())
            verb = self.pick(("said", "said", "whispered", "shouted", "answered"))
            facts.append(f'{name} {verb}: "{text}"')
            questions.append((self.pick((f"What did {name} say?", f"Tell me what {name} said.")), f'{name} said: "{text}"'))
        return facts, questions

    def facts(self, n):
        facts, questions = [], []
        for _ in range(n):
            name, kind = self.new_name(), self.r.randrange(4)
            if kind == 0:
                city = self.pick(CITIES)
                facts.append(f"{name} lives in {city}.")
                questions.append((f"Where does {name} live?", f"{name} lives in {city}."))
            elif kind == 1:
                colour, thing = self.pick(COLOURS), self.pick(OBJECTS)
                facts.append(f"{name} has {a(colour)} {thing}.")
                questions.append(self.pick(((f"What does {name} have?", f"{name} has {a(colour)} {thing}."),
                                            (f"What colour is the {thing} of {name}?", cap(colour) + "."))))
            elif kind == 2:
                job = self.pick(JOBS)
                facts.append(f"{name} works as {a(job)}.")
                questions.append((self.pick((f"What is the job of {name}?", f"What does {name} do?")), f"{name} works as {a(job)}."))
            else:
                number = self.r.randint(18, 90)
                facts.append(f"{name} is {number} years old.")
                questions.append((f"How old is {name}?", f"{name} is {number} years old."))
        return facts, questions

    def key_values(self, n):
        kind, mark = self.pick(("digits", "digits", "digits", "word", "phrase")), self.pick((": ", ": ", " = ", " -> "))
        lines, questions = [], []
        for _ in range(n):
            key = self.unique(self.key)
            value = self.value(kind)
            lines.append(key + mark + value)
            questions.append((self.pick((f"What is the value of {key}?", f"What is the value of {key}?", f"Look up {key}.", f"{key}?")), value))
        return lines, questions

    def json_objects(self, n):
        fields = self.r.sample(["city", "age", "job", "item", "colour", "code", "pet"], self.r.randint(2, 4))
        make = {"city": lambda: self.pick(CITIES), "age": lambda: self.r.randint(18, 90), "job": lambda: self.pick(JOBS),
                "item": lambda: self.pick(OBJECTS), "colour": lambda: self.pick(COLOURS),
                "code": lambda: int(self.digits(3, 5)), "pet": lambda: self.pick(ANIMALS)}
        lines, questions = [], []
        for _ in range(n):
            row = {"name": self.new_name()} | {f: make[f]() for f in fields}
            lines.append(json.dumps(row))
            for _ in range(self.r.randint(1, 2)):
                if self.r.random() < .6:
                    f = self.pick(fields)
                    questions.append((self.pick((f"What is the {f} of {row['name']}?", f"Give the field {f} of {row['name']}.")), str(row[f])))
                else:
                    some = ["name"] + self.r.sample(fields, self.r.randint(1, len(fields)))
                    some = [f for f in row if f in some]
                    questions.append((f"Give {join(some)} of {row['name']} as JSON.", json.dumps({f: row[f] for f in some})))
        return lines, questions

    def lookup_episode(self, tokens, kind=None):
        """A haystack of about `tokens` tokens, then as many questions as the caller cares to use."""
        r, p = self.r, self.pick
        kind = kind or p(("passkey", "kv", "kv", "kv", "said", "facts", "json", "json", "mixed"))
        if kind == "kv":
            lines, questions = self.key_values(max(2, tokens // 12))
            body = p(("\n", "\n", ", ")).join(lines)
            intro = p(("Here is a list of keys and values.", "Remember these entries:", "Entries:", "The table:"))
            context = f"{intro}\n{body}"
        elif kind == "json":
            lines, questions = self.json_objects(max(1, tokens // 34))
            context = p(("Here is some JSON.", "Records:", "Read this JSON:")) + "\n[" + ",\n".join(lines) + "]"
        else:
            budget = tokens
            if kind == "passkey":
                facts, questions = self.passkeys(1 if r.random() < .4 else r.randint(1, max(1, min(24, budget // 40))))
            elif kind == "said":
                facts, questions = self.quotes(r.randint(1, max(1, min(40, budget // 20))))
            elif kind == "facts":
                facts, questions = self.facts(r.randint(1, max(1, min(60, budget // 12))))
            else:
                facts, questions = [], []
                for make in (self.passkeys, self.quotes, self.facts):
                    f, q = make(r.randint(1, max(1, min(15, budget // 60))))
                    facts, questions = facts + f, questions + q
                for line, q in zip(*self.key_values(r.randint(1, max(1, min(15, budget // 60))))):
                    facts.append(f"Note that {line}.")
                    questions.append(q)
            r.shuffle(facts)
            context = self.scatter(facts, budget)
            if r.random() < .5:
                context = p(("Read the text.", "Here is a text.", "Remember what is in this text.")) + "\n\n" + context
        r.shuffle(questions)
        turns = [(context + "\n\n" + questions[0][0], questions[0][1])] + questions[1:]
        if r.random() < .15:
            turns = [(context, "OK.")] + questions
        return turns

    # -- short episodes ------------------------------------------------------------------------------------------------
    def random_text(self, n):
        r, p = self.r, self.pick
        kind = r.randrange(5)
        if kind == 0:
            return " ".join(self.sentence() for _ in range(max(1, n // 10)))
        if kind == 1:
            return " ".join(p(OBJECTS + ANIMALS + KEYS + FOODS) for _ in range(n))
        if kind == 2:
            return " ".join(self.digits(1, 5) for _ in range(max(1, n // 3)))
        if kind == 3:
            return " ".join(self.syllables(1, 3) for _ in range(max(1, n // 3)))
        return ", ".join(self.key() for _ in range(max(1, n // 5)))

    def copy(self, tokens=None):
        text = self.unique(lambda: self.random_text(tokens or self.r.randint(3, 40)))
        return [(self.pick(("Repeat exactly: ", "Copy this text: ", "Repeat after me: ", "Say: ", "Copy this text:\n")) + text, text)]

    def count(self):
        r, p = self.r, self.pick
        pool = r.sample(OBJECTS + ANIMALS + FOODS, r.randint(2, 5))
        if r.random() < .5:
            n = r.randint(1, 12)
            items = [p(OBJECTS + ANIMALS + FOODS) for _ in range(n)]
            return [(p(("How many items are in this list: ", "Count the items: ")) + ", ".join(items), str(n))]
        while True:
            items = [p(pool) for _ in range(r.randint(2, 14))]
            n = items.count(pool[0])
            if n <= 12 and self.allowed(" ".join(items)):
                return [(f"How many times does the word {pool[0]} appear: " + " ".join(items), str(n))]

    def instruction(self):
        r, p = self.r, self.pick
        word = p(OBJECTS + ANIMALS + FOODS + PLACES + JOBS)
        items = r.sample(OBJECTS + ANIMALS + FOODS, r.randint(2, 6))
        kind = r.randrange(30)
        if kind > 27:
            topic = lambda: p(UNKNOWN_TOPICS) if r.random() < .7 else self.odd_word()
            question = p(UNKNOWN_QUESTIONS)
            return question.format(*[topic() for _ in range(question.count("{}"))]), DO_NOT_KNOW
        if kind > 24:
            kind = 6 if kind == 27 else 2
        if kind == 0:
            group, members = p((("colours", COLOURS), ("animals", ANIMALS), ("names", NAMES), ("foods", FOODS),
                                ("cities", CITIES), ("jobs", JOBS), ("months", MONTHS)))
            n = r.randint(2, 6)
            return p((f"List {NUMBER_WORDS[n]} {group}.", f"Name {NUMBER_WORDS[n]} {group}.")), cap(join(r.sample(members, n)) + ".")
        if kind == 1:
            w = p(list(OPPOSITES))
            return p((f"What is the opposite of {w}?", f"Opposite of {w}?")), cap(OPPOSITES[w]) + "."
        if kind == 2:
            w = self.syllables() if r.random() < .2 else word
            return p((f"Spell the word {w}.", f"Spell {w}.")), "-".join(w)
        if kind == 3:
            return p((f"Write {word} in capital letters.", f"Write the word {word} in upper case.")), word.upper()
        if kind == 4:
            return p(("Reverse this list: ", "Write this list backwards: ")) + ", ".join(items), ", ".join(items[::-1])
        if kind == 5:
            numbers = r.sample(range(1, 100), r.randint(2, 6))
            up = r.random() < .7
            q = p(("Sort these numbers: ", "Put these numbers in order: ")) if up else "Sort these numbers from high to low: "
            return q + ", ".join(map(str, numbers)), ", ".join(map(str, sorted(numbers, reverse=not up)))
        if kind == 6:
            x, y = r.randint(0, 12), r.randint(0, 12)
            return p((f"What is {x} + {y}?", f"Add {x} and {y}.", f"{x} + {y} =")), str(x + y)
        if kind == 7:
            x, y = sorted((r.randint(0, 12), r.randint(0, 12)), reverse=True)
            return p((f"What is {x} - {y}?", f"{x} - {y} =")), str(x - y)
        if kind == 8:
            which = p(("first", "last"))
            text = " ".join(items)
            return f"What is the {which} word of: {text}", items[0 if which == "first" else -1]
        if kind == 9:
            group = p(RHYMES)
            w, v = r.sample(group, 2)
            return p((f"Which word rhymes with {w}?", f"Give a word that rhymes with {w}.")), cap(v) + "."
        if kind == 10:
            names, i = p((DAYS, MONTHS)), r.randrange(7)
            if r.random() < .6:
                return f"What comes after {names[i]}?", names[(i + 1) % len(names)] + "."
            return f"What comes before {names[i]}?", names[(i - 1) % len(names)] + "."
        if kind == 11:
            country = p(list(CAPITALS))
            return p((f"What is the capital of {country}?", f"Name the capital of {country}.")), f"The capital of {country} is {CAPITALS[country]}."
        if kind in (12, 13):
            q, answer = p(ABOUT)
            return p(q), answer
        if kind == 14:
            return p(FACTS)
        if kind == 15:
            w = p(list(BABIES))
            return f"What is a young {w} called?", f"A young {w} is called {a(BABIES[w])}."
        if kind == 16:
            w = p(list(SOUNDS))
            return f"What sound does {a(w)} make?", cap(f"{a(w)} {SOUNDS[w]}.")
        if kind == 17:
            w = p(list(LEGS))
            return f"How many legs does {a(w)} have?", cap(f"{a(w)} has {LEGS[w] and NUMBER_WORDS[LEGS[w]] or 'no'} legs.")
        if kind == 18:
            w = p(OBJECTS + ANIMALS + FOODS[6:12])
            return f"What is the plural of {w}?", cap(plural(w)) + "."
        if kind in (19, 20):
            w = p(ANIMALS + OBJECTS + JOBS)
            return p((f"Write a short story about {a(w)}.", f"Tell me a story about {a(w)}.", f"Write a story about {a(w)}.")), self.story(w)
        if kind == 21:
            w, x, y = p(OBJECTS), p(COLOURS), p(ADJECTIVES)
            return f"Describe {a(w)}.", f"The {w} is {x} and {y}. It is in the {p(PLACES)}. {p(NAMES)} {p(VERBS)[1]} it {p(('yesterday', 'last week', 'today'))}."
        if kind == 22:
            w, x = p(NUMBER_WORDS), r.randint(0, 20)
            return (f"Write the number {x} as a word.", NUMBER_WORDS[x]) if r.random() < .5 else (f"Write {w} as digits.", str(NUMBER_WORDS.index(w)))
        if kind == 23:
            x, y = r.sample(range(1, 1000), 2)
            return f"Which number is bigger, {x} or {y}?", str(max(x, y))
        n = r.randint(3, 12)
        return f"Count from 1 to {n}.", ", ".join(map(str, range(1, n + 1)))

    def memory_episode(self, tokens):
        """The user tells things about themselves, talks of something else, then asks for them."""
        r, p = self.r, self.pick
        name = self.name()
        about = {"name": (f"My name is {name}.", f"Nice to meet you, {name}.", ("What is my name?", "Who am I?"), f"Your name is {name}.")}
        city, colour, other, pet, thing, number = p(CITIES), p(COLOURS), p(COLOURS), p(ANIMALS), p(OBJECTS), self.digits(2, 6)
        about["city"] = (f"I live in {city}.", f"OK, you live in {city}.", ("Where do I live?",), f"You live in {city}.")
        about["colour"] = (f"My favourite colour is {colour}.", "OK, I will remember that.", ("What is my favourite colour?",),
                           f"Your favourite colour is {colour}.")
        about["pet"] = (f"I have {a(pet)}.", f"{cap(a(pet))} is a good friend.", ("Which animal do I have?",), f"You have {a(pet)}.")
        about["number"] = (f"Remember the number {number}.", f"OK, I will remember {number}.",
                           ("Which number did I tell you?", "What was the number?"), f"The number is {number}.")
        about["thing"] = (f"I lost my {other} {thing}.", f"I am sorry about your {thing}.", ("What did I lose?",), f"You lost your {other} {thing}.")
        chosen = r.sample(list(about), r.randint(1, 4))
        turns, total = [], 0
        for key in chosen:
            if turns and r.random() < .4 and turns[-1][1].startswith(("OK", "Nice")):
                turns[-1] = (turns[-1][0] + " " + about[key][0], turns[-1][1])
            else:
                turns.append(about[key][:2])
        while total < tokens:
            q, answer = self.instruction()
            if q in ("What is your name?",):
                continue
            total += approx_tokens(q) + approx_tokens(answer) + 9
            turns.append((q, answer))
        r.shuffle(chosen)
        turns += [(p(about[key][2]), about[key][3]) for key in chosen]
        if r.random() < .3:  # all in one message
            key = p(chosen)
            turns.append((f"{about[key][0]} {p(about[key][2])}", about[key][3]))
        return turns

    def short_episode(self):
        kind = self.r.random()
        if kind < .2:
            return self.copy()
        if kind < .42:
            return self.count()
        if kind < .52:
            x, y = self.r.randint(0, 12), self.r.randint(0, 12)
            if self.r.random() < .5:
                return [(self.pick((f"What is {x} + {y}?", f"Add {x} and {y}.", f"{x} + {y} =")), str(x + y))]
            return [(self.pick((f"What is {max(x, y)} - {min(x, y)}?", f"{max(x, y)} - {min(x, y)} =")), str(abs(x - y)))]
        turn = self.instruction()
        return [turn]

    def casual(self, question):
        """Sometimes the way people type: "please", a small first letter, no full stop. Never touches what is to be copied."""
        r = self.r.random()
        if r > .15 or "\n" in question:
            return question
        verb = question.split(" ")[0]
        if verb in ("List", "Name", "Spell", "Write", "Reverse", "Sort", "Tell", "Give", "Count", "Add", "Describe", "Look",
                    "Repeat", "Copy") and r < .06:
            return "Please " + question[0].lower() + question[1:]
        if r < .1 and question[-1] in "?." and ":" not in question and len(question) > 12:
            question = question[:-1]
        return question[0].lower() + question[1:] if r > .04 else question

    # -- rows ----------------------------------------------------------------------------------------------------------
    def chat(self, tokens, short_share=.3):
        """Turns worth at least `tokens` tokens: one long episode, or several small ones, or short tasks."""
        r = self.r
        self.fresh()
        turns, total = [], 0
        one = r.random() < .5
        short_only = r.random() < short_share
        while total < tokens:
            left = tokens - total
            if left > 80 and r.random() < .1:
                episode = self.memory_episode(r.uniform(0, .5) * min(left, 600))
            elif short_only or left < 80 or (not one and r.random() < .15):
                episode = self.short_episode()
            else:
                size = int(left * r.uniform(.45, .8 if left < 1500 else .95)) if one else min(left, int(60 * 2 ** r.uniform(0, 4)))
                episode = self.lookup_episode(size)
                if not one:
                    episode = episode[:r.randint(2, 12)]
                one = one and left < 1500  # long rows go on with short material once the questions are used up
            for q, answer in episode:
                q = self.casual(q)
                turns.append((q, answer))
                total += approx_tokens(q) + approx_tokens(answer) + 9
                if total >= tokens * 1.1 + 20:
                    break
        if r.random() < .08:
            system = self.pick(("You are a helpful assistant.", "Answer briefly.", "You are the Kvasir demo model."))
            turns[0] = (system + "\n\n" + turns[0][0], turns[0][1])
        return turns


def chat_text(turns):
    """The text of a chat as the chat template writes it, without <bos>."""
    return "".join(f"<start_of_turn>user\n{q}<end_of_turn>\n<start_of_turn>model\n{answer}<end_of_turn>\n" for q, answer in turns)


class Encoder:
    """Chats to (tokens, is_answer). Pieces are encoded one by one; special tokens keep that exact."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        special = tokenizer.token_to_id
        newline = tokenizer.encode("\n", add_special_tokens=False).ids
        role = lambda name: tokenizer.encode(name + "\n", add_special_tokens=False).ids
        self.bos = special("<bos>")
        self.user = [special("<start_of_turn>")] + role("user")
        self.model = [special("<start_of_turn>")] + role("model")
        self.end, self.newline = special("<end_of_turn>"), newline

    def encode(self, turns):
        texts = [t for turn in turns for t in turn]
        ids = [e.ids for e in self.tokenizer.encode_batch(texts, add_special_tokens=False)]
        tokens, answer = [self.bos], [0]
        for q, reply in zip(ids[::2], ids[1::2]):
            head = self.user + q + [self.end] + self.newline + self.model
            tokens += head + reply + [self.end] + self.newline
            answer += [0] * len(head) + [1] * (len(reply) + 1) + [0] * len(self.newline)
        return tokens, answer

    def row(self, gen, length):
        """One training row: length + 1 tokens (inputs and shifted targets)."""
        tokens, answer = self.encode(gen.chat(length + 1, short_share=.5 if length <= 512 else .3))
        while len(tokens) < length + 1:
            more, flags = self.encode([t for _ in range(8) for t in gen.short_episode()])
            tokens, answer = tokens + more[1:], answer + flags[1:]
        return tokens[:length + 1], answer[:length + 1]


# -- held-out evaluation items -----------------------------------------------------------------------------------------
LONG_TASKS = ("passkey", "kv", "said", "json", "facts")
SHORT_TASKS = ("copy", "count", "instruction")
OPEN_ENDED = ("Write a", "Tell me a", "Describe", "List", "Name t", "Name f", "Name s", "Which word rhymes", "Give a word")


def item(task, tokens, seed, count_tokens=None):
    """One held-out single-turn item: {task, tokens_approx, prompt, answer}.

    With count_tokens (text -> tokens) the prompt is fitted to 94..100 % of `tokens`, chat tokens and answer included.
    """
    budget = tokens - 40
    for _ in range(8):
        made = _item(task, tokens, seed, int(budget))
        if not count_tokens or task not in LONG_TASKS:
            break
        used = count_tokens(made["prompt"]) + count_tokens(made["answer"]) + 12
        if .94 * tokens <= used <= tokens:
            break
        budget *= .97 * tokens / used
    return made


def _item(task, tokens, seed, budget):
    g = Gen(f"eval/{task}/{tokens}/{seed}", held_out=True)
    if task == "passkey":
        fact, question = g.passkeys(1)
        prompt = g.scatter(fact, budget) + "\n\n" + question[0][0]
        answer = question[0][1]
    elif task in LONG_TASKS:
        turns = g.lookup_episode(budget, task)
        prompt, answer = turns[0]
        if answer == "OK.":  # the context came in a turn of its own
            prompt, answer = prompt + "\n\n" + turns[1][0], turns[1][1]
    elif task == "copy":
        prompt, answer = g.copy()[0]
    elif task == "count":
        prompt, answer = g.count()[0]
    else:
        while True:
            prompt, answer = g.instruction()
            if not prompt.startswith(OPEN_ENDED):
                break
    return {"task": task, "tokens_approx": tokens, "prompt": prompt, "answer": answer}
