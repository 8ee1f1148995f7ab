#!/usr/bin/env python3
"""Writes tests/fixtures/chat/cases.json: what Jinja makes of the templates there, and of small ones drawn at random.

Needs jinja2 (PyPI). The environment is the one in which Transformers renders chat templates: sandboxed, trim_blocks and
lstrip_blocks, loop controls, {% generation %}, tojson without escapes. A null stands where Jinja raises an error.
"""
import json
import pathlib
import random

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "tests/fixtures/chat"
DRAWS = 600


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_kept"), [], [], body).set_lineno(line)

    def _kept(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def environment():
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    made.filters["tojson"] = lambda x, ensure_ascii=False, indent=None, separators=None, sort_keys=False: json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    made.globals["raise_exception"] = raise_exception
    return made


TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Of a \"place\" — <now> & then",
                                            "parameters": {"type": "object", "n": [1, 2.5, True, None]}}}]
CALL = [{"id": "call:0", "type": "function", "function": {"name": "weather", "arguments": {"place": "Zürich", "days": 3}}}]


def said(*turns):
    return [{"role": role, "content": content} for role, content in turns]


CONVERSATIONS = [
    said(("user", "Hello"), ("assistant", "Hi there"), ("user", " And \n you? "), ("assistant", "Fine, 谢谢 🙂")),
    said(("system", " Be brief. "), ("user", "What is <b> & \"c\"?"), ("assistant", "A tag.\n")),
    said(("system", "S"), ("user", "Q"), ("assistant", "<think>\nhm\n</think>\n\nA"), ("user", "Q2"),
         ("assistant", "<think>\nso\n</think>\n\nB")),
    said(("user", "only a question")),
    said(("user", "weather?")) + [{"role": "assistant", "content": "", "tool_calls": CALL},
                                  {"role": "tool", "content": "sunny", "tool_call_id": "call:0"},
                                  {"role": "assistant", "content": "It is sunny."}],
    said(("assistant", "first"), ("user", "then")),
    [{"role": "user", "content": [{"type": "text", "text": "a part"}, {"type": "text", "text": " and more"}]}],
]


def bounded(leaf):
    """Of a method that draws: beyond three within each other, a leaf."""
    def wrap(method):
        def drawn(self):
            self.depth = getattr(self, "depth", 0) + 1
            try:
                return leaf if self.depth > 3 else method(self)
            finally:
                self.depth -= 1
        return drawn
    return wrap


class Draw(random.Random):
    """Small templates over `messages`, of what published ones are made of."""

    @bounded("'ab'")
    def text(self):
        return self.choice(["'a'", "'Ab c'", "'  x y '", "'é中🙂z'", "''", "'a,b,,c'", "messages[0].content", "messages[-1]['role']",
                            "(messages[0].content ~ 1)", f"({self.text()} + {self.text()})" if self.random() < .5 else "'12'",
                            f"{self.text()}|{self.choice(['trim', 'upper', 'lower', 'title', 'capitalize', 'string'])}"
                            if self.random() < .6 else "'x'",
                            f"{self.text()}.{self.choice(['strip()', 'upper()', 'lower()', 'title()', 'capitalize()', 'rstrip(chr)', 'replace(chr, sub)', 'split(chr)[0]', 'split()[-1]', 'lstrip()', 'removeprefix(chr)', 'split(chr, 1)[-1]', 'rsplit(chr, 1)[0]', 'partition(chr)[2]'])}".replace("chr", "'a'").replace("sub", "'--'")
                            if self.random() < .7 else "'y'",
                            f"{self.text()}[{self.slice()}]" if self.random() < .6 else "'q'"])

    def slice(self):
        part = lambda: self.choice(["", "1", "-1", "2", "-3", "0"])
        return self.choice([f"{part()}:{part()}", f"{part()}:{part()}:{self.choice(['1', '2', '-1', '-2'])}", "::-1"])

    @bounded("2")
    def number(self):
        return self.choice(["0", "1", "2", "7", "-3", "2.5", "messages|length", f"({self.number()} {self.choice(['+', '-', '*', '//', '%', '/', '**'])} {self.choice(['1', '2', '3', '0.5'])})"
                            if self.random() < .6 else "4", f"{self.text()}|length" if self.random() < .6 else "5",
                            f"{self.text()}.find('b')" if self.random() < .3 else "3", f"({self.list()})|length" if self.random() < .4 else "6",
                            f"{self.text()}|int", "'3.7'|float", "-7 // 2", "2 ** 3 - 1", "7 % -3", "1e3", "-2|abs"])

    @bounded("[1, 2]")
    def list(self):
        return self.choice(["[1, 2, 3]", "['b', 'A', 'c']", "messages|map(attribute='role')|list", "[]", f"{self.text()}.split('a')" if self.random() < .5 else "[3, 1, 2]",
                            f"({self.list()})[{self.slice()}]" if self.random() < .5 else "(1, 'x')", f"({self.list()})|reverse|list" if self.random() < .5 else "['a', 'a', 'A']",
                            f"range({self.choice(['3', '1, 4', '5, 0, -2'])})|list", "['b', 'A', 'c']|sort", "[3, 1, 2]|sort(reverse=true)", "['a', 'b', 'A']|unique|list",
                            "messages|selectattr('role', 'equalto', 'user')|list", "messages|rejectattr('role', '==', 'user')|map(attribute='content')|list",
                            "['a', '', 'c']|select|list", "[1, 2, 3, 4]|select('odd')|list", "[1, 2]|map('string')|list", "[true, none, 1.0, 'q\\'s', \"d\"]"])

    @bounded("true")
    def condition(self):
        return self.choice([f"{self.number()} {self.choice(['<', '>', '==', '!=', '<=', '>='])} {self.number()}", f"{self.text()} in {self.text()}",
                            f"{self.text()} not in {self.list()}", f"{self.text()} is {self.choice(['string', 'defined', 'mapping', 'iterable', 'none', 'number', 'sequence', 'lower', 'upper'])}",
                            f"{self.text()} == {self.text()}", "missing is defined", "missing is not defined", "missing", f"not {self.condition()}" if self.random() < .5 else "true",
                            f"({self.condition()} {self.choice(['and', 'or'])} {self.condition()})" if self.random() < .6 else "false", f"{self.number()} is {self.choice(['odd', 'even', 'divisibleby 3', 'number'])}",
                            f"{self.text()}.startswith(('a', 'A'))", f"{self.text()}.isdigit()", "1 < 2 < 3", f"{self.list()} == {self.list()}", "'content' in messages[0]"])

    def value(self):
        return self.choice([self.text(), self.number(), self.list(), self.condition(), f"{self.list()}|join({self.choice(['', repr(', ')])})", f"{self.list()}|tojson",
                            "messages[0]|tojson", "tools|tojson(indent=2)", "messages[0]|tojson(sort_keys=true)", f"{self.text()} if {self.condition()} else {self.text()}", f"{self.text()} if {self.condition()}",
                            f"missing|default({self.text()})", f"{self.text()}|default('d', true)", f"{self.list()}|first", f"{self.list()}|last", f"{self.text()} ~ {self.number()} ~ {self.condition()}",
                            "messages[0].items()|list", "messages[0]|items|list", "messages[0]|dictsort", "messages[0].get('none', 'other')", "messages[0].get('none')", "{'a': 1, 'b': [2, none]}", "{'a': 1}.keys()|list",
                            f"{self.text()}|replace('a', 'bb')", f"{self.text()}|indent(2)", "'a\\nb\\n\\nc'|indent(2)", "missing.content", "[1, 2, 3]|sum", "[1, 5, 3]|max", "['b', 'A']|min", "2.5|round", "3.14159|round(2)",
                            f"{self.list()}[{self.choice(['0', '1', '-1', '9'])}]", "namespace(a=1).a", "dict(a=1, b='x')", "'a' 'b'", "'\\u00e9\\x41\\t|'", "(1,)", "()", "1.0", "1e20", "0.1 + 0.2", "7 / 2", "10 ** 3"])

    def block(self, depth):
        blank = lambda: self.choice(["", "", " ", "\n", "\n  ", "text", "  text\n"])
        a, b = self.choice(["{%", "{%-", "{%", "{%+"]), self.choice(["%}", "-%}", "%}", "+%}"])
        inner = lambda: self.block(depth - 1) if depth > 0 and self.random() < .7 else self.choice(["x", "\n", "{{ 1 }}", " y\n"])
        tag = lambda text: self.choice([a, "{%"]) + " " + text + " " + self.choice([b, "%}"])
        kind = self.randrange(9)
        if kind < 3:
            body = self.choice(["{{", "{{-"]) + " " + self.value() + " " + self.choice(["}}", "-}}"])
        elif kind == 3:
            body = tag(f"if {self.condition()}") + blank() + inner() + blank() + (tag(f"elif {self.condition()}") + inner() if self.random() < .4 else "") + (
                tag("else") + blank() + inner() if self.random() < .5 else "") + tag("endif")
        elif kind == 4:
            loop = self.choice(["loop.index", "loop.index0", "loop.first", "loop.last", "loop.revindex", "loop.length", "loop.previtem", "loop.nextitem is defined", "loop.cycle('a', 'b')", "i"])
            body = tag(f"for i in {self.list()}" + (" if i" if self.random() < .2 else "")) + blank() + "{{ " + loop + " }}" + inner() + (
                tag("if loop.index > 1") + tag(self.choice(["break", "continue"])) + tag("endif") if self.random() < .3 else "") + blank() + (tag("else") + "none" if self.random() < .3 else "") + tag("endfor")
        elif kind == 5:
            body = tag(f"set v = {self.value()}") + blank() + "{{ v }}"
        elif kind == 6:
            body = tag("set v") + inner() + tag("endset") + "[{{ v }}]"
        elif kind == 7:
            body = tag("macro m(p, q='d')") + blank() + "{{ p }}{{ q }}" + inner() + tag("endmacro") + "{{ m(" + self.value() + ") }}{{ m(1, q=2) }}"
        else:
            body = tag("set ns = namespace(n=0)") + tag("for i in messages") + tag("set ns.n = ns.n + 1") + tag("set w = i") + tag("endfor") + "{{ ns.n }}{{ w }}" + self.choice(["{# note #}", "{#- note -#}\n", "{% raw %}{{ kept }}{% endraw %}\n"])
        return blank() + body + blank()

    def template(self):
        return "".join(self.block(2) for _ in range(self.randint(1, 3)))


def rendered(env, template, **context):
    try:
        return env.from_string(template).render(**context, **TOKENS, documents=None)
    except Exception:    # whatever a template can do wrong
        return None


def main():
    env = environment()
    published = []
    for path in sorted(FOLDER.glob("*.jinja")):
        for number, messages in enumerate(CONVERSATIONS):
            for tools in (None, TOOLS):
                for prompt in (False, True):
                    published.append(dict(template=path.stem, conversation=number, tools=tools is not None, prompt=prompt,
                                          text=rendered(env, path.read_text(), messages=messages, tools=tools, add_generation_prompt=prompt)))
    draw, drawn = Draw(7), []
    for _ in range(DRAWS):
        template = draw.template()
        text = rendered(env, template, messages=CONVERSATIONS[1], tools=TOOLS, add_generation_prompt=False)
        if " at 0x" not in (text or "") and "<generator" not in (text or ""):
            drawn.append(dict(template=template, text=text))
    (FOLDER / "cases.json").write_text(json.dumps(dict(tokens=TOKENS, tools=TOOLS, conversations=CONVERSATIONS, published=published,
                                                       drawn=drawn), ensure_ascii=False, indent=0) + "\n")
    print(f"{len(published)} of templates, {len(drawn)} drawn, {sum(c['text'] is None for c in drawn)} of them errors")


if __name__ == "__main__":
    main()
