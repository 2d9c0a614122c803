#!/usr/bin/env python3
"""Writes jinja_cases.jsonl: what Python's jinja2 makes, in the environment of Hugging Face transformers,
of each line of jinja_expressions.txt between braces, of jinja_templates.txt, and of WHITESPACE. Made
with Python 3.11 and jinja2 3.1.6; run it again with the same versions after adding a template. It does
not cover whole chat templates: the golden cases do."""
import datetime
import json
import pathlib

import jinja2
import jinja2.ext
import jinja2.sandbox

VARIABLES = {
    's': 'Hello World',
    'u': 'héLLo ßtraße Σίσυφος ΟΔΟΣ ﬁ ŉ 🙂',
    'n': 5,
    'neg': -7,
    'f': 2.5,
    'big': 1e+22,
    'small': 1.5e-07,
    't': True,
    'nn': None,
    'e': '',
    'l': [3, 1, 2],
    'ls': ['b', 'A', 'c', 'a'],
    'd': {'b': 1, 'A': 2, 'c': [1, 'x', None, True, 1.0]},
    'm': [{'role': 'user', 'content': 'hi', 'n': 2}, {'role': 'assistant', 'content': 'yo', 'n': 1}, {'role': 'user', 'content': 'bye <|x|>'}],
    'nest': {'a': {'b': {'c': 1}}, 'items': 'IT', 'keys': 3},
    'ml': 'line1\n  line2\n\nline4\r\nx\x0by',
    'q': 'it\'s "q"',
    'ws': ' \t a b  c \n',
    'html': '<b>&"\'</b>',
    'tab': 'a\tb\\c\x07\u200bé😀',
}

# Templates in which line ends and blanks matter.
WHITESPACE = [
    '  {% if t %}\n  x\n  {% endif %}\ny\n',
    '  {%- if t %}\n  x\n  {%- endif %}\ny',
    '  {%+ if t %}\n  x\n  {%+ endif +%}\ny',
    '{% if t -%}\n   x\n{%- endif %}',
    '{% if t %}\n\nx\n\n{% endif %}\n\ny\n\n',
    'x{% if t %}\ny{% endif %}\nz\n',
    '\t{% if t %}tab{% endif %}\n',
    '  {# c #}\n  x\n  {# c #} y\nx {# c #}\ny',
    '{{ n }}\n\n',
    '{{ n }}\r\nx\r\ny\ry\r\n',
    '{% set a = 1 %}\n{% set b = 2 %}\n{{ a }}{{ b }}',
    '{% raw %}\nx\n{% endraw %}\ny',
    '  {% raw %}  \nx\n  {% endraw %}  \ny',
    'a\n  {%- raw %}  x {%- endraw %}\n b',
    '{% for i in l %}\n  {{ i }}\n{% endfor %}\n',
    '{% for i in l %}\n  {%- if i %}\n    {{ i }}\n  {%- endif %}\n{% endfor %}\nz',
    '{# a #}\n{# b #}\nx',
    '  {#- a -#}  \n  x',
    '{%- macro f(x) -%}\n  {{ x }}\n{%- endmacro -%}\n[{{ f(1) }}]',
    '{% macro f(x) %}\n  {{ x }}\n{% endmacro %}\n[{{ f(1) }}]',
    "{{ 'a\r\nb' }}",
    '\n\n{% if t %}x{% endif %}\n\n',
    '  {{ n }}  \n  {%  if t  %}  \n  z {% endif %}\n',
    '\u3000{%- if t %}\u2003x\u2003{%- endif %}',
    '{{ n -}}\n\n  x',
    '{{ n }}\n',
    '{% if t %}{{ n }}\n{% endif %}\n',
    'x {% if t +%}\n y{% endif %}',
    '{%- if t +%}\n y{% endif %}',
    '{{ \'}}\' }}{{ "%}" }}',
    '{% set x %}\n a\n{% endset %}[{{ x }}]',
    'a{#+ x +#}\nb',
    'a {#- x +#}\nb',
    '{{+ 1}}',
    '{{ 1 +}}',
    '{{-1}}',
    '{{--1}}',
    '{% if t%}{%endif%}',
    '{{\'a\'}}{{"b"}}{{a-b}}',
    '{{n-1}}',
    '{{n -1}}',
    '{%if n>1%}x{%endif%}',
    '{{ l[-1] }}',
    "{{ {}['a'] }}",
    "{{{'a':1}.a}}",
    '{{ {} }}',
    '{ {n} }',
    '{{ n }',
    '{ % if %}',
    '{%',
    '{{',
    '{#',
    '{% raw %}',
    '{%raw%}{{x}}{%endraw%}',
    '#}',
    '}}',
    '%}',
]

# Left out, because this engine means to differ (docs/chat-templates.md says why) or because the
# output holds an address.
LEFT_OUT = ["random", "lipsum", "{{ self }}", "n.real", "ud83d", " at 0x", "|items }}", "joiner('|') }}"]
LEFT_OUT_WHOLE = ["{#", "{% raw %}", "{{ l|reverse }}"]


class Generation(jinja2.ext.Extension):
    """transformers' {% generation %}: prints its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_print")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _print(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def make_environment():
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    now = datetime.datetime(2025, 1, 15, 12, 34, 56)
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = now.strftime
    return environment


def lines_of(path):
    return path.read_text(encoding="utf-8").splitlines()


def main():
    environment = make_environment()
    folder = pathlib.Path(__file__).parent
    templates = ["{{ " + line + " }}" for line in lines_of(folder / "jinja_expressions.txt")]
    templates += lines_of(folder / "jinja_templates.txt") + WHITESPACE
    path = folder / "jinja_cases.jsonl"
    with path.open("w", encoding="utf-8", newline="\n") as out:
        out.write(json.dumps({"variables": VARIABLES}, ensure_ascii=False) + "\n")
        for template in templates:
            case = {"template": template}
            try:
                case["output"] = environment.from_string(template).render(**VARIABLES)
            except Exception as error:  # jinja2 lets any Python error through
                case["error"] = type(error).__name__
            shown = template + case.get("output", "")
            if template not in LEFT_OUT_WHOLE and not any(part in shown for part in LEFT_OUT):
                out.write(json.dumps(case, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
