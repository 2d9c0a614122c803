#!/usr/bin/env python3
"""The web page in a real browser, against the real program and the bundled model.

Usage: web_test.py PROGRAM MODEL. Exits 77, which ctest shows as skipped, where there is no
Chromium.
Deliberately only what a browser is needed for: the routes have tests of their own.
"""
import os
import shutil
import subprocess
import sys
import unittest
from urllib.parse import urlsplit

from webdriver import Browser, poll

SKIPPED = 77
ENTER, ESCAPE, UP = "\ue007", "\ue00c", "\ue013"
# Long enough that branches have whole blocks in common.
FACTS = " ".join(f"Note {i}: the {thing} is {colour}." for i, (thing, colour) in enumerate(
    [("door", "green"), ("letter", "silver"), ("boat", "red"), ("lamp", "yellow"),
     ("cup", "white"), ("coat", "black"), ("chair", "brown"), ("stone", "grey")]))
ASK = FACTS + " The pass key is 48213. Remember it. What is the pass key?"


class Server:
    """`kvasir serve` on a free port."""

    def __init__(self, *flags):
        self.process = subprocess.Popen(
            [PROGRAM, "serve", "-m", MODEL, "--port", "0", "--cache-bytes", "64M", *flags],
            stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if line.startswith("listening on "):
                self.url = line.split()[-1]
                break
        else:
            raise AssertionError("the server did not start")

    def close(self):
        self.process.terminate()
        self.process.communicate()


class WebTest(unittest.TestCase):
    flags = ()
    # Errors of the console that a test provokes.
    expected_errors = ()

    def setUp(self):
        self.server = Server(*self.flags)
        self.addCleanup(self.server.close)
        self.browser = Browser(CHROMIUM, CHROMEDRIVER)
        self.addCleanup(self.browser.close)
        self.browser.go(self.server.url + "/")

    def check_page(self):
        """To be called at the end of a test: it was quiet and asked nobody else."""
        errors = [entry["message"] for entry in self.browser.console()
                  if not any(expected in entry["message"] for expected in self.expected_errors)]
        self.assertEqual(errors, [])
        urls = [url for url in self.browser.requested_urls() if url.startswith("http")]
        self.assertGreater(len(urls), 5)
        host = urlsplit(self.server.url).netloc
        self.assertEqual({urlsplit(url).netloc for url in urls}, {host})

    def set_greedy(self):
        self.browser.click("#show-settings")
        self.browser.type("#set-temperature", "0")
        self.browser.click("#show-settings")

    def send(self, text):
        self.browser.type("#prompt", text)
        self.browser.key(ENTER)

    def wait_for_answers(self, count):
        """Until nothing is being answered and `count` answers are shown."""
        self.browser.until(
            "return !document.getElementById('send').hidden && "
            "document.querySelectorAll('.turn.assistant').length === arguments[0]",
            f"{count} answers", count)

    def answers(self):
        return self.browser.run("return [...document.querySelectorAll('.turn.assistant .text')]"
                                ".map((e) => e.innerText)")

    def cached(self):
        """Of the last answer: (cached, prompt) tokens."""
        return self.browser.run(
            "const e = [...document.querySelectorAll('.stats.cached')].at(-1);"
            "return [Number(e.dataset.cached), Number(e.dataset.prompt)]")


class ChatTest(WebTest):
    def test_chat_then_branch_shares_the_cache(self):
        browser = self.browser
        self.assertEqual(browser.run("return document.activeElement.id"), "prompt")
        browser.until("return document.getElementById('model').textContent", "the model's name")
        self.set_greedy()
        self.send(ASK)
        self.wait_for_answers(1)
        self.assertEqual(self.answers(), ["48213"])
        self.send("What is the pass key?")
        self.wait_for_answers(2)
        self.assertGreater(self.cached()[0], 64)

        # The branch: another first message that begins alike. Edited with the keyboard alone.
        browser.click(".turn.user:first-child .edit")
        self.assertEqual(browser.run("return document.activeElement.value"), ASK)
        browser.clear(".edit-field")
        browser.type(".edit-field", ASK.replace("48213", "90077"))
        browser.key(ENTER)
        self.wait_for_answers(1)
        self.assertEqual(self.answers(), ["90077"])
        cached, prompt = self.cached()
        self.assertGreaterEqual(cached, 64)
        self.assertLess(cached, prompt)
        self.assertEqual(browser.text(".turn.user .branches span"), "2/2")

        # The picture: two sequences with blocks in common.
        poll(lambda: browser.count('#blocks .run[data-shared="2"]') >= 2,
             "blocks that two sequences share are in the picture")
        self.assertGreaterEqual(browser.count("#blocks .sequence"), 2)
        browser.until("return document.querySelectorAll('.curve polyline[points]').length === 2",
                      "both curves are drawn")
        self.assertIn("cached", browser.text("#budget"))
        for colour in ("codec", "tier"):
            browser.click(f"#colouring input[value={colour}]")
            self.assertGreater(browser.count(f"#blocks.by-{colour} .run"), 0)

        # Back on the first branch everything is as it was, also after a reload.
        browser.click(".turn.user .previous")
        self.assertEqual(self.answers()[0], "48213")
        self.assertEqual(browser.count(".turn"), 4)
        browser.go(self.server.url + "/")
        self.assertEqual(browser.count(".turn"), 4)

        # Another answer to the same prompt: all but its last token is known.
        browser.click(".turn.assistant:last-child .retry")
        self.wait_for_answers(2)
        cached, prompt = self.cached()
        self.assertEqual(cached, prompt - 1)
        browser.key(UP)
        self.check_page()

    def test_stop_ends_the_answer_in_the_server(self):
        browser = self.browser
        browser.click("#show-settings")
        # The model's end token never comes: only stopping ends it.
        browser.type("#set-temperature", "2")
        browser.click("#show-settings")
        browser.run("window.realFetch = window.fetch;"
                    "window.fetch = (path, options) => { if (options?.body) {"
                    "  const body = JSON.parse(options.body);"
                    "  options.body = JSON.stringify({...body, ignore_eos: true, min_p: 0}); }"
                    "  return window.realFetch(path, options); };")
        self.send("Spell the word river.")
        poll(lambda: len(self.answers()[0]) > 20, "text streams in")
        self.assertTrue(browser.run("return document.getElementById('send').hidden"))
        browser.key(ESCAPE)
        self.wait_for_answers(1)
        self.assertIn("stopped", browser.text(".turn.assistant .tools"))
        browser.until("return fetch('/slots').then((r) => r.json())"
                      ".then((slots) => slots.every((slot) => !slot.is_processing))",
                      "the server has ended it")
        # What was said so far is part of the conversation.
        self.assertGreater(len(self.answers()[0]), 20)
        self.check_page()

    def test_markdown_never_becomes_markup(self):
        shown = self.browser.run("""
            const {renderMarkdown} = await import('/web/markdown.js');
            const hostile = ['<img src=x onerror="hacked=1"><script>window.hacked=1</script>',
              '[a](javascript:window.hacked=1) [b](data:text/html,x) [c](https://example.org/ok)',
              '![pixel](https://example.org/p.png)', '`<b>`', '# <i>',
              '| a | <u> |\\n|---|---|\\n| 1 | 2 |', '> '.repeat(500) + 'deep',
              '*'.repeat(300), '- '.repeat(300), '`'.repeat(301)].join('\\n\\n');
            const box = document.createElement('div');
            box.append(...renderMarkdown(hostile));
            document.body.append(box);
            const result = {
              markup: box.querySelectorAll('img, script, b, i, u, iframe, style').length,
              links: [...box.querySelectorAll('a')].map((a) => a.href), hacked: window.hacked ?? 0};
            box.replaceChildren(...renderMarkdown('# T\\n\\ntext **bold** and *so* `code`\\n\\n' +
              '1. one\\n   - inner\\n2. two\\n\\n```py\\nx = 1\\n```\\n\\n|a|b|\\n|-|-:|\\n|1|2|'));
            result.structure = ['h3', 'strong', 'em', 'p > code', 'ol > li > ul > li', 'pre > code',
              'td.to-right'].filter((selector) => !box.querySelector(selector));
            result.code = box.querySelector('pre').textContent;
            box.remove();
            return result;""")
        self.assertEqual(shown["markup"], 0)
        self.assertEqual(shown["links"], ["https://example.org/ok", "https://example.org/p.png"])
        self.assertEqual(shown["hacked"], 0)
        self.assertEqual(shown["structure"], [])
        self.assertEqual(shown["code"], "x = 1")
        # And if the page had a mistake, the browser would refuse it.
        refused = self.browser.run("try { document.createElement('div').innerHTML = '<b>x</b>'; "
                                   "return 'taken'; } catch (error) { return error.name; }")
        self.assertEqual(refused, "TypeError")

    def test_markdown_as_models_write_it(self):
        shown = self.browser.run("""
            const {renderMarkdown} = await import('/web/markdown.js');
            const box = document.createElement('div');
            const draw = (text) => box.replaceChildren(...renderMarkdown(text));
            draw('1. Create it:\\n\\n    ```python\\n    import os\\n\\n\\n    def f(): return 1\\n' +
                 '    ```\\n\\n\\n2. Run it.\\n\\nDone.');
            const result = {items: [...box.querySelectorAll('ol > li')].length,
                            code: box.querySelector('pre').textContent,
                            after: box.lastChild.textContent};
            draw('  ```\\n  a\\n    b\\n  ```');
            result.margin = box.querySelector('pre').textContent;
            draw('The table:\\n|a|b|\\n|-|-|\\n|1|2|');
            result.table = [box.firstChild.textContent, box.querySelectorAll('td').length];
            draw('[Foo](https://example.org/Foo_(bar)) https://example.org/x_(y), (https://example.org/z).');
            result.links = [...box.querySelectorAll('a')].map((a) => a.href);
            draw('***both*** **bold *it***');
            result.text = box.textContent;
            result.lists = ['- Foo\\n    - a\\n    - b\\n    - c\\n- Bar', '  - a\\n  - b', '  1. a\\n  2. b',
                            '- a\\n  - b\\n\\n    more\\n  - c'].map((text) => {
              draw(text);
              const tree = (list) => [...list.children].map((item) => {
                const inner = item.querySelector(':scope > ul, :scope > ol');
                return inner ? tree(inner) : item.textContent;
              });
              return tree(box.firstChild);
            });
            return result;""")
        self.assertEqual(shown["items"], 2)
        self.assertEqual(shown["code"], "import os\n\n\ndef f(): return 1")
        self.assertEqual(shown["after"], "Done.")
        self.assertEqual(shown["margin"], "a\n  b")
        self.assertEqual(shown["table"], ["The table:", 2])
        self.assertEqual(shown["links"], ["https://example.org/" + name
                                          for name in ("Foo_(bar)", "x_(y)", "z")])
        self.assertEqual(shown["text"], "both bold it")
        self.assertEqual(shown["lists"], [[["a", "b", "c"], "Bar"], ["a", "b"], ["a", "b"],
                                          [["bmore", "c"]]])

    def test_what_is_done_stays_while_the_rest_is_made(self):
        kept = self.browser.run("""
            const {ChatView} = await import('/web/chat_view.js');
            const {Conversation} = await import('/web/conversation.js');
            const conversation = new Conversation();
            const question = conversation.add(conversation.root, 'user', 'q');
            const answer = conversation.add(question, 'assistant', '');
            Object.assign(answer, {isStreaming: true, reasoning: 'why',
                                   content: 'First.\\n\\n```\\ncode\\n```\\n\\nSec'});
            const view = new ChatView(conversation, {mayAnswer: () => false});
            view.showAll();
            const find = (selector) => document.querySelector('.turn.assistant ' + selector);
            const parts = [find('details'), find('.text > p'), find('.code'), find('.copy')];
            find('summary').click();
            find('.copy').focus();
            find('.copy').click();
            view.edit(question);
            document.querySelector('.edit-field').value = 'half a question';
            await new Promise((done) => setTimeout(done, 100));
            answer.content += 'ond.';
            view.update(answer);
            await new Promise((done) => setTimeout(done, 200));
            const said = find('.copy').textContent;
            view.showAll();
            return {connected: parts.map((part) => part.isConnected), open: parts[0].open, said,
                    focus: document.activeElement.className, text: find('.text').innerText,
                    field: document.querySelector('.edit-field')?.value};""")
        self.assertEqual(kept["connected"], [True] * 4)
        self.assertTrue(kept["open"])
        self.assertIn("Second.", kept["text"])
        self.assertNotEqual(kept["said"], "Copy")
        self.assertEqual(kept["focus"], "edit-field")
        self.assertEqual(kept["field"], "half a question")

    def test_what_a_browser_does_not_keep_is_said(self):
        kept = self.browser.run("""
            const {Conversation} = await import('/web/conversation.js');
            const first = new Conversation();
            first.add(first.root, 'user', 'branch left');
            first.add(first.root, 'user', 'shown');
            const names = () => [...JSON.parse(sessionStorage.getItem('kvasir.conversation'))
                                 .root.children].map((message) => message.content);
            const result = {all: [first.save(), names()]};
            const {setItem} = Storage.prototype;
            Storage.prototype.setItem = function(key, text) {
              if (text.includes('branch left')) throw new DOMException('', 'QuotaExceededError');
              setItem.call(this, key, text);
            };
            result.shown = [first.save(), names(), Conversation.restored().last().content];
            Storage.prototype.setItem = () => { throw new DOMException('', 'QuotaExceededError'); };
            first.add(first.last(), 'assistant', 'more');
            result.none = [first.save(), names()];
            Storage.prototype.setItem = setItem;
            // Another version's.
            sessionStorage.setItem('kvasir.conversation', JSON.stringify(
              {nextId: 2, root: {role: 'root', chosen: 7, children: [{role: 'user', children: []}]}}));
            first.save();
            sessionStorage.setItem('kvasir.conversation', JSON.stringify(
              {nextId: 2, root: {role: 'root', chosen: 7, children: [{role: 'user', children: []}]}}));
            result.other = Conversation.restored().path().length;
            return result;""")
        self.assertEqual(kept["all"], [True, ["branch left", "shown"]])
        self.assertEqual(kept["shown"], [True, ["shown"], "shown"])
        self.assertEqual(kept["none"], [False, ["shown"]])
        self.assertEqual(kept["other"], 0)

    def test_a_looping_answer_is_drawn(self):
        # With a pattern that takes the square or cube of this, the browser ends the script.
        drawn = self.browser.run("""
            const {renderMarkdown} = await import('/web/markdown.js');
            const n = 16000;
            const lines = ['a' + '`'.repeat(n), '# a' + ' '.repeat(n) + 'b', '[a](b'.repeat(n / 5),
              '![i](data:' + 'x'.repeat(n), '['.repeat(n), '**a '.repeat(n / 4),
              '```' + 'a'.repeat(n) + '`', '~'.repeat(n) + '`', 'a|b\\n-' + ' '.repeat(n) + 'x',
              '|'.repeat(n / 2) + '\\n' + '|-'.repeat(n / 4) + '\\n' + '|\\n'.repeat(n / 4),
              '`a` *b* '.repeat(n / 8), 'https://'.repeat(n / 8), '# ' + '#'.repeat(n) + 'a',
              'https://a(' + 'https://('.repeat(n / 9), '[a](' + '(b'.repeat(n / 2), '***a '.repeat(n / 5),
              '|a\\n'.repeat(n / 3), '- a\\n' + '\\n'.repeat(n)];
            return lines.map((line) => renderMarkdown(line).length > 0);""")
        self.assertEqual(drawn, [True] * 18)

    def test_a_question_without_an_answer_keeps_the_turns_apart(self):
        roles = self.browser.run("""
            const {Conversation} = await import('/web/conversation.js');
            const conversation = new Conversation();
            const stopped = conversation.add(conversation.add(conversation.root, 'user', 'q'),
                                             'assistant', '');
            const next = conversation.add(stopped, 'user', 'r');
            return conversation.messagesUpTo(next).map((message) => message.role);""")
        self.assertEqual(roles, ["user", "assistant", "user"])

    def test_every_value_that_is_typed_is_sent_or_refused(self):
        browser = self.browser
        browser.click("#show-settings")
        browser.type("#set-temperature", "0.72")
        browser.type("#set-min_p", "0.005")
        browser.type("#set-max_tokens", "3")
        browser.run("window.bodies = []; const ask = window.fetch; window.fetch = (path, options) =>"
                    " { if (options?.body) bodies.push(JSON.parse(options.body));"
                    " return ask(path, options); };")
        browser.type("#set-top_p", "7")
        browser.click("#show-settings")
        self.send("Hello")
        browser.until("return !document.getElementById('settings').hidden", "the wrong value shows")
        self.assertEqual(browser.count(".turn"), 0)
        browser.run("document.getElementById('set-top_p').value = '0.975';")
        browser.click("#prompt")
        browser.key(ENTER)
        self.wait_for_answers(1)
        sent = browser.run("return bodies[0]")
        self.assertEqual([sent[name] for name in ("temperature", "min_p", "top_p", "max_tokens")],
                         [0.72, 0.005, 0.975, 3])
        self.check_page()

    def test_an_answer_that_is_taken_back_leaves_a_conversation(self):
        left = self.browser.run("""
            const {Conversation} = await import('/web/conversation.js');
            const conversation = new Conversation();
            const question = conversation.add(conversation.root, 'user', 'q');
            const answers = ['a', 'b', 'c'].map((text) => conversation.add(question, 'assistant', text));
            const last = () => conversation.last().content;
            const left = [last()];
            question.chosen = 1;
            for (const answer of [answers[0], answers[2], answers[1]]) {
              conversation.remove(answer);
              left.push(last());
            }
            return left;""")
        self.assertEqual(left, ["c", "b", "b", "q"])

    def test_what_only_decorates_is_hidden_from_readers(self):
        self.browser.one("#budget")
        shown = self.browser.run("""
            const {h} = await import('/web/dom.js');
            return h('i', {'aria-hidden': true, hidden: true}).outerHTML;""")
        self.assertEqual(shown, '<i aria-hidden="true" hidden=""></i>')

    def test_reasoning_is_folded(self):
        parts = self.browser.run("""
            const {splitReasoning} = await import('/web/conversation.js');
            return ['<think>why', '<think>why</think>\\n\\nso', 'no <think>']
              .map((text) => Object.values(splitReasoning(text)));""")
        self.assertEqual(parts, [["why", ""], ["why", "so"], ["", "no <think>"]])
        shown = self.browser.run("""
            const {ChatView} = await import('/web/chat_view.js');
            const {Conversation} = await import('/web/conversation.js');
            const conversation = new Conversation();
            const answer = conversation.add(conversation.add(conversation.root, 'user', 'q'),
                                            'assistant', 'so');
            answer.reasoning = 'why';
            new ChatView(conversation, {}).showAll();
            const fold = document.querySelector('.turn details.reasoning');
            return [fold.open, fold.textContent];""")
        self.assertEqual(shown, [False, "Reasoningwhy"])
        self.assertEqual(self.answers(), ["so"])

    def test_a_phone_shows_one_thing_at_a_time(self):
        phone = Browser(CHROMIUM, CHROMEDRIVER, width=500, height=800)
        self.addCleanup(phone.close)
        phone.go(self.server.url + "/")
        self.assertTrue(phone.run("return document.getElementById('cache').hidden"))
        phone.click("#show-cache")
        poll(lambda: "budget" in phone.text("#budget"), "the budget is shown")
        overhang = phone.run("return document.documentElement.scrollWidth - innerWidth")
        self.assertLessEqual(overhang, 0)


class KeyTest(WebTest):
    flags = ("--api-key", "sesame")
    expected_errors = ("401",)

    def give(self, key):
        self.browser.one("#key-dialog[open]")
        self.browser.type("#key-entry", key)
        self.browser.key(ENTER)

    def test_a_wrong_key_is_said_and_the_right_one_works(self):
        browser = self.browser
        self.give("wrong")
        browser.until("const dialog = document.getElementById('key-dialog');"
                      "return dialog.open && dialog.innerText.includes('API key') && "
                      "document.getElementById('key-entry').value === ''", "it is asked for again")
        browser.click("#key-cancel")
        self.send("Hello")
        browser.one(".turn.assistant .error")
        self.assertIn("API key", browser.text(".turn.assistant .error"))
        self.give("sesame")
        browser.until("return document.querySelector('.stats.cached')", "it is answered now")
        self.assertEqual(browser.count(".turn .error"), 0)
        self.assertEqual(browser.run("return sessionStorage.getItem('kvasir.key')"), "sesame")
        self.assertNotIn("sesame", browser.run("return JSON.stringify(localStorage)"))
        self.check_page()


class NoWebTest(unittest.TestCase):
    def test_it_can_be_switched_off(self):
        server = Server("--no-webui")
        self.addCleanup(server.close)
        browser = Browser(CHROMIUM, CHROMEDRIVER)
        self.addCleanup(browser.close)
        browser.go(server.url + "/")
        self.assertIn("without its web page", browser.text("body"))


if __name__ == "__main__":
    CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
    CHROMEDRIVER = shutil.which("chromedriver")
    if not CHROMIUM or not CHROMEDRIVER:
        print("skipped: there is no browser (apt-get install chromium chromium-driver)")
        sys.exit(SKIPPED)
    PROGRAM, MODEL = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[3:]])
