"""Our templates render as jinja2 does under transformers' settings, feature by feature and for whole chats."""
import copy
import datetime
import functools
import json
import os
import pathlib
import random
import subprocess

import jinja2
import pytest
from transformers.utils import chat_template_utils

import chat_cases

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = pathlib.Path(os.environ.get("CHAT_TOOL", ROOT / "build/tests/chat_tool"))
NOW = datetime.datetime(2025, 3, 4, 5, 6, 7)

pytestmark = pytest.mark.skipif(not TOOL.exists(), reason=f"needs {TOOL}: ninja chat_tool")


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


@pytest.fixture(scope="module")
def ours():
    process = subprocess.Popen([TOOL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(**job):
        job.setdefault("now", int(NOW.timestamp()))
        process.stdin.write(json.dumps(job) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    yield ask
    process.stdin.close()
    assert process.wait() == 0


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    monkeypatch.setattr(chat_template_utils, "datetime", Clock)
    chat_template_utils._compile_jinja_template.cache_clear()


def theirs(template, variables):
    try:
        return chat_template_utils._compile_jinja_template(template).render(**copy.deepcopy(variables))
    except Exception as error:  # whatever Python raises, we must fail too
        return error


def agree(ours, template, variables):
    wanted = theirs(template, variables)
    found = ours(template=template, variables=variables)
    if isinstance(wanted, Exception):
        return "error" in found, f"jinja2 fails ({wanted!r}), ours gives {found!r}"
    return found.get("text") == wanted, f"jinja2: {wanted!r}\n  ours: {found.get('text', found.get('error'))!r}"


@pytest.mark.parametrize("expression", chat_cases.EXPRESSIONS)
def test_an_expression_is_what_jinja2_makes_of_it(ours, expression):
    same, difference = agree(ours, "{{ " + expression + " }}", chat_cases.VARIABLES)
    assert same, difference


@pytest.mark.parametrize("template", chat_cases.TEMPLATES)
def test_a_template_renders_as_in_jinja2(ours, template):
    same, difference = agree(ours, template, chat_cases.VARIABLES)
    assert same, difference


@pytest.mark.parametrize("template", chat_cases.FAILING)
def test_what_jinja2_refuses_fails_with_its_place(ours, template):
    assert isinstance(theirs(template, chat_cases.VARIABLES), Exception)
    error = ours(template=template, variables=chat_cases.VARIABLES).get("error")
    assert error, "ours renders it"


# --- random expressions ------------------------------------------------------------------------------------------------

ATOMS = ["none", "yes", "no", "0", "1", "-3", "2.5", "n", "x", "s", "u", "e", "blank", "l", "words", "d", "nested", "rows",
         "empty", "missing", "'ab'", "'a b'", "[1, 2]", "(1, 'z')", "{'k': 1}", "range(3)", "quotes", "digits", "mixed"]
FILTERS = ["upper", "lower", "trim", "length", "first", "last", "list", "join", "join('-')", "string", "int", "float", "abs",
           "sort", "reverse", "unique", "tojson", "default('q')", "default('q', true)", "title", "capitalize", "sum", "min",
           "max", "map('string')", "select", "reject('none')", "dictsort", "items", "replace('a', 'b')", "round", "indent",
           "center(9)", "wordcount", "batch(2)", "escape", "truncate(6)", "urlencode", "selectattr('name')", "count"]
TESTS = ["defined", "undefined", "none", "string", "mapping", "sequence", "iterable", "number", "integer", "float",
         "boolean", "true", "false", "odd", "even", "in l", "eq 1", "lt 2", "callable", "lower", "upper"]
METHODS = ["upper()", "lower()", "strip()", "split()", "split('b')", "splitlines()", "startswith('a')", "endswith('d')",
           "replace('l', 'L')", "items()", "keys()", "values()", "get('b')", "get('q', 5)", "count('a')", "find('o')",
           "title()", "isdigit()", "index(1)", "join(words)", "format(1, 2)", "rstrip('d')", "name", "a", "a.b", "b"]
OPERATORS = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]


def expression(rng, depth):
    if depth == 0:
        return rng.choice(ATOMS)
    inner = lambda: expression(rng, depth - 1)
    kind = rng.randrange(9)
    if kind == 0:
        return f"({inner()} {rng.choice(OPERATORS)} {inner()})"
    if kind == 1:
        return f"({inner()}) | {rng.choice(FILTERS)}"
    if kind == 2:
        return f"(({inner()}) is {rng.choice(['', 'not '])}{rng.choice(TESTS)})"
    if kind == 3:
        return f"({inner()}).{rng.choice(METHODS)}"
    if kind == 4:
        bounds = [rng.choice(["", "", "0", "1", "2", "-1", "-2", "9"]) for _ in range(3)]
        bounds[2] = rng.choice(["", "", "1", "-1", "2", "-2"])
        return f"({inner()})[{':'.join(bounds)}]"
    if kind == 5:
        return f"({inner()})[{rng.choice(['0', '1', '-1', repr('a'), repr('name'), 'n', 'missing', inner()])}]"
    if kind == 6:
        return f"({inner()} if {inner()} else {inner()})"
    if kind == 7:
        return f"[{inner()}, {inner()}]"
    return f"(not {inner()})"


# Python prints these with an address or a type's name.
UNPRINTABLE = (" at 0x", "range(", "dict_items(", "dict_keys(", "dict_values(", "<class", "Markup(")
# Where we fail at once and say why. jinja2's generators fail when they are used; it prints their addresses; it folds a
# constant's slice to nothing that is an error for a variable; some of its filters take what is no text by accident.
REFUSED = ("cannot be printed", "has no slices", "passes 64 bits", "cannot be walked through", "needs a mapping",
           "needs a text", "cannot be the key of a mapping", "there is no value", "has no attribute", "has no element")


@pytest.mark.parametrize("seed", range(int(os.environ.get("CHAT_SEEDS", 20))))
def test_random_expressions_are_what_jinja2_makes_of_them(ours, seed):
    rng = random.Random(seed)
    for _ in range(300):
        template = "{{ " + expression(rng, rng.randrange(1, 4)) + " }}"
        wanted = theirs(template, chat_cases.VARIABLES)
        if isinstance(wanted, str) and any(text in wanted for text in UNPRINTABLE):
            continue
        same, difference = agree(ours, template, chat_cases.VARIABLES)
        if not isinstance(wanted, Exception) and any(text in difference for text in REFUSED):
            continue
        assert same, template + "\n" + difference


# --- whole chats ---------------------------------------------------------------------------------------------------------

TEMPLATES = ROOT / "tests/text/templates"
SMOLLM2 = ROOT / ".cache/models/smollm2-hf"
LLAMA = ROOT / ".cache/tokenizers/llama3.2"

WEATHER = {"type": "function", "function": {
    "name": "weather", "description": "The weather of a <city>", "parameters": {
        "type": "object", "required": ["city"], "properties": {
            "city": {"type": "string", "description": "Where: a name\nof a place that may be rather long"},
            "days": {"type": ["integer", "null"]}, "unit": {"type": "string", "enum": ["C", "F"]},
            "tags": {"type": "array", "items": {"type": "object", "properties": {"k": {"type": "string"}}}}}}}}

CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Köln", "days": 2}}}
PLAIN = [
    [{"role": "user", "content": "Hi"}],
    [{"role": "user", "content": "  spaces \n"}, {"role": "assistant", "content": " kept? "}, {"role": "user", "content": "日本 🌶"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}],
    [{"role": "user", "content": "q"}, {"role": "assistant", "content": "<think>\nhm\n</think>\n\na"},
     {"role": "user", "content": "q2"}, {"role": "assistant", "content": "<think>\nhm2\n</think>\n\na2"}],
    [{"role": "user", "content": ""}, {"role": "assistant", "content": ""}],
    [{"role": "user", "content": "a\r\nb\tc {{ x }} {% if %}"}, {"role": "assistant", "content": "\"quoted\" 'text' \\n"}],
]
WITH_CALLS = [
    [{"role": "user", "content": "w?"}, {"role": "assistant", "content": "", "tool_calls": [CALL]},
     {"role": "tool", "tool_call_id": "c1", "content": "{\"t\": 21}"}, {"role": "assistant", "content": "21 °C"}],
    [{"role": "user", "content": "w?"}, {"role": "assistant", "content": "let me look", "tool_calls": [CALL]},
     {"role": "tool", "tool_call_id": "c1", "content": "rain"}, {"role": "user", "content": "and?"}],
]
CHATS = [(name, chat) for name in ["turns_marked", "headers", "brackets", "thoughts", "pipes", "schemas"] for chat in PLAIN]
CHATS += [(name, chat) for name in ["turns_marked", "headers", "thoughts", "schemas"] for chat in WITH_CALLS]


@pytest.mark.parametrize("prompt", [False, True])
@pytest.mark.parametrize("name,chat", CHATS)
def test_a_chat_renders_as_by_transformers(ours, name, chat, prompt):
    source = (TEMPLATES / f"{name}.jinja").read_text()
    calls = any("tool_calls" in message for message in chat)
    tools = [WEATHER] if calls and name in ("turns_marked", "schemas") else None
    wanted = theirs(source, {"messages": chat, "tools": tools, "documents": None, "add_generation_prompt": prompt,
                             "bos_token": "<s>", "eos_token": "</s>"})
    job = dict(template=source, messages=chat, bos="<s>", eos="</s>", add_generation_prompt=prompt)
    if tools:
        job["tools"] = tools
    found = ours(**job)
    if isinstance(wanted, jinja2.TemplateError):
        assert "error" in found
    else:
        assert found.get("text", found.get("error")) == wanted


@pytest.mark.parametrize("name", ["turns_marked", "schemas"])
@pytest.mark.parametrize("chat", PLAIN + WITH_CALLS)
def test_generation_blocks_mark_what_transformers_marks(ours, name, chat):
    source = (TEMPLATES / f"{name}.jinja").read_text()
    wanted, marks = chat_template_utils._render_with_assistant_indices(
        chat_template_utils._compile_jinja_template(source), chat, None, None, False)
    found = ours(template=source, messages=chat, turns=True)
    assert found["text"] == wanted
    assert trained_ranges(found["pieces"]) == [range for range in marks if range[0] < range[1]]


def trained_ranges(pieces):
    ranges, at = [], 0
    for text, _, trained in pieces:
        if trained and ranges and ranges[-1][1] == at:
            ranges[-1] = (ranges[-1][0], at + len(text))
        elif trained:
            ranges.append((at, at + len(text)))
        at += len(text)
    return ranges


@functools.cache
def tokenizer_of_transformers(folder):
    import transformers
    return transformers.AutoTokenizer.from_pretrained(folder)


@pytest.mark.skipif(not SMOLLM2.exists(), reason="needs SmolLM2 in .cache/models")
@pytest.mark.parametrize("chat", PLAIN)
def test_smollm2_s_own_template_and_ids(ours, chat):
    tokenizer = tokenizer_of_transformers(SMOLLM2)
    for prompt in [False, True]:
        found = ours(model=str(SMOLLM2), messages=chat, add_generation_prompt=prompt, ids=True)
        assert found["text"] == tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=prompt)
        assert found["ids"] == tokenizer.apply_chat_template(chat, add_generation_prompt=prompt, return_dict=False)


@pytest.mark.skipif(not LLAMA.exists(), reason="needs Llama 3.2's tokenizer in .cache/tokenizers")
@pytest.mark.parametrize("chat", PLAIN + WITH_CALLS)
def test_ids_of_llama_s_tokenizer(ours, chat):
    tokenizer = tokenizer_of_transformers(LLAMA)
    source = (TEMPLATES / "headers.jinja").read_text()
    found = ours(template=source, tokenizer=str(LLAMA), messages=chat, bos="<|begin_of_text|>", ids=True)
    wanted = tokenizer.apply_chat_template(chat, chat_template=source, return_dict=False)
    assert found["ids"] == wanted
    assert found["ids"].count(128000) == 1
