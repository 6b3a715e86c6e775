"""Templates and values for test_chat.py: every feature of the language, each in a line or two.

EXPRESSIONS are rendered as {{ expression }} over VARIABLES; TEMPLATES as they stand. FAILING ones must fail in both.
"""

VARIABLES = {
    "none": None, "yes": True, "no": False, "zero": 0, "n": 7, "neg": -7, "x": 2.5, "tiny": 1e-7, "huge": 1e22,
    "whole": 3.0, "s": "Hello, World", "u": "Straße Ünïcode 日本 🌶", "e": "", "blank": "  a b \n", "lines": "a\nb\r\n\nc\n",
    "quotes": "it's \"both\"", "single": "it's", "ctl": "tab\tnul\x01 \x7f \u2028 \u00a0",
    "l": [3, 1, 2], "mixed": [1, "a", None, True, 2.0, [1], {"k": "v"}], "words": ["b", "A", "c", "a"], "empty": [],
    "d": {"b": 1, "a": 2, "items": "shadowed", "C": 3}, "nested": {"a": {"b": [{"c": "deep"}]}}, "ed": {},
    "rows": [{"name": "z", "age": 3, "tags": ["p"]}, {"name": "y", "age": 1, "tags": []}, {"name": "x", "age": 2}],
    "big": 12345678901234567890, "html": "<a href='x'>&\"</a>", "digits": "123", "long": "word " * 30,
    "types": {"s": "x", "i": 1, "f": 1.5, "t": True, "n": None, "l": [1, {"z": []}], "o": {}},
}

EXPRESSIONS = r"""
1 + 2 * 3 - 4
7 / 2
6 / 2
7 // 2
-7 // 2
7 // -2
7.5 // 2
-7.5 // 2
7 % 3
-7 % 3
7 % -3
-7.5 % 2
2 ** 10
2 ** -1
2 ** 3 ** 2
-2 ** 2
2 ** 0.5
(1 + 2) * 3
1 + 2.0
0.1 + 0.2
1e3
1.5e-5
1e16
123456789012345.0
1_000_000
0x1F + 0b101 + 0o17
1e400
-0.0
- - 3
+3
-true
true + true
3 * 'ab'
'ab' * 0
[1] * 3
(1, 2) + (3,)
[1] + [2, 3]
'a' ~ 1 ~ none ~ true ~ 2.0 ~ [1, 'x'] ~ {'k': none}
'a' 'b' "c"
1 ~ 2 + 3
n ~ s
1 < 2 < 3
1 < 3 < 2
1 == 1.0
1 == true
'a' < 'b'
'Z' < 'a'
[1, 2] < [1, 3]
(1, 2) == [1, 2]
none == none
none == false
{'a': 1} == {'a': 1.0}
1 != 2 and not 3 == 4
not not yes
not (1 in l)
1 in l and 5 not in l
'ell' in s
'a' in d
'zz' in d
'x' not in words
undefined_name in l
'a' in undefined_name
2 in range(3)
yes and 'then' or 'else'
0 or '' or none or 'last'
1 and 0 and 2
'a' if yes else 'b'
'a' if no else 'b'
'a' if no
('a' if no) is defined
'a' if yes else 'b' if no else 'c'
s if s is string else 'x'
1 if 2 > 1 else 0
missing
missing is defined
missing is undefined
missing | default('x')
missing or 'x'
missing ~ 'x'
missing | length
missing | list
missing | upper
missing | string
missing == missing
missing == none
missing is none
missing is string
missing is iterable
missing is sequence
missing | join
d.missing
d['missing'] is defined
d.b
d['b']
d.items is callable
d['items']
d.items() | list
d.keys() | list
d.values() | list
d | items | list
d.get('b')
d.get('q')
d.get('q', 'fallback')
d.get('q') is none
d | length
nested.a.b[0].c
nested['a']['b'][0]['c']
nested.a.b.0.c
nested.a.q is defined
l[0]
l[-1]
l[5] is defined
l[true]
l['x'] is defined
l[1:]
l[:-1]
l[::-1]
l[::2]
l[5:]
l[-2:]
l[0:2]
l[:100]
l[2:0:-1]
words[-1:0:-1]
s[0]
s[-1]
s[0:5]
s[::-1]
s[100:]
s[100] is defined
s[-3:]
u[2:8]
u[::-1]
u[-1]
u | length
(1, 2, 3)[1:]
range(10)[2:8:3] | list
range(5) | list
range(2, 8, 3) | list
range(5, 0, -2) | list
range(0) | list
range(3)
range(1, 10, 4)
[1, 'a', none, true, 1.5, (1,), (), {}]
(1,)
()
{'a': 1, 2: 'b', none: [], (1, 2): 'tuple'}
{'a': 1, 'a': 2}
{1: 'int', true: 'bool'}
s.upper()
s.lower()
s.title()
s.capitalize()
s.swapcase()
u.upper()
u.lower()
u.title()
u.swapcase()
"they're bill's friends".title()
"they're bill's friends" | title
'foo-bar (baz) [qux] <a>b' | title
s | upper
s | lower
s | capitalize
u | capitalize
s.split()
s.split(',')
s.split(', ')
s.split('l', 1)
s.rsplit('l', 1)
s.split('zz')
s.rsplit(' ')
' a  b c '.split(none, 1)
' a  b c '.rsplit(none, 1)
' a  b c '.split()
'a,b,c'.rsplit(',', 1)
'a,b,c'.split(',', maxsplit=1)
'aaa'.split('aa')
'aaa'.rsplit('aa')
''.split()
''.split(',')
'</think>x</think>y'.split('</think>')[-1]
lines.splitlines()
lines.splitlines(true)
''.splitlines()
'a\u2028b\x0bc\x1cd'.splitlines()
blank.strip()
blank.lstrip()
blank.rstrip()
'xxaxx'.strip('x')
'abcabc'.lstrip('ab')
'\u00a0 x\u3000'.strip()
blank | trim
'xxaxx' | trim('x')
s.startswith('Hello')
s.startswith(('X', 'He'))
s.endswith('World')
s.endswith('x')
s.startswith('World', 7)
s.startswith('Wor', 7, 9)
s.find('o')
s.find('o', 5)
s.rfind('o')
s.find('zz')
u.find('日')
s.index('W')
s.count('l')
s.count('')
s.replace('l', 'L')
s.replace('l', 'L', 1)
'abc'.replace('', '-')
'abc'.replace('', '-', 2)
s | replace('World', 'x')
n | replace(7, 8)
', '.join(words)
'-'.join('abc')
'a-b-c'.partition('-')
'a-b-c'.rpartition('-')
'abc'.partition('-')
'abc'.rpartition('-')
'abc'.removeprefix('a')
'abc'.removesuffix('c')
'abc'.removeprefix('x')
'5'.zfill(3)
'-5'.zfill(4)
'ab'.ljust(5) ~ '|'
'ab'.rjust(5, '.')
'ab'.center(5, '*')
'abc'.center(6, '*')
'a'.center(4, '*')
'ab' | center(7)
digits.isdigit()
'12a'.isdigit()
''.isdigit()
'²'.isdigit()
'²'.isdecimal()
'½'.isnumeric()
'abc'.isalpha()
'日本'.isalpha()
'a1'.isalnum()
'a b'.isalnum()
'  '.isspace()
''.isspace()
'ABC1'.isupper()
'abc1'.islower()
'123'.isupper()
'abc'.isascii()
'é'.isascii()
'{} and {}'.format(1, 'b')
'{1} {0} {1}'.format('a', 'b')
'{name} {x[1]} {d.k}'.format(name='n', x=[1, 2], d={'k': 'v'})
'{{}} {!r}'.format('q')
'{:>5}|{:<5}|{:^5}|{:*^7}'.format('a', 'b', 'c', 'd')
'{:5d}|{:05d}|{:+d}|{:x}|{:#x}'.format(42, 42, 42, 255, 255)
'{:.2f} {:8.3f} {:e}'.format(3.14159, 2.5, 12345.678)
'{:5}|{:5}'.format(1, 'a')
'{:.3}'.format('abcdef')
'%s is %d and %.2f' % ('a', 3, 2.5)
'%s' % 'x'
'%s' % 5
'%5s|%-5s|' % ('a', 'b')
'%05d|%+d|% d' % (42, 42, 42)
'%x %X %o' % (255, 255, 8)
'%(a)s %(b)d' % {'a': 'x', 'b': 2}
'100%%' % ()
'%r' % 'x'
'%s %s' | format('a', 1)
'%(a)s' | format(a=5)
words | sort
words | sort(case_sensitive=true)
words | sort(reverse=true)
l | sort
l | sort(reverse=true)
rows | sort(attribute='age') | map(attribute='name') | list
rows | sort(attribute='age,name', reverse=true) | map(attribute='name') | join(',')
d | dictsort
d | dictsort(true)
d | dictsort(by='value', reverse=true) if false else 'skipped'
{'b': 1, 'a': 3} | dictsort(by='value')
words | unique | list
[1, 1.0, true, 2, '1'] | unique | list
words | unique(case_sensitive=true) | list
l | min
l | max
words | min
words | max
rows | max(attribute='age')
empty | min is defined
l | sum
rows | sum(attribute='age')
l | sum(start=10)
[1.5, 2] | sum
l | first
l | last
empty | first is defined
empty | last is defined
s | first
s | last
d | first
l | reverse | list
s | reverse
u | reverse
l | join
l | join('-')
l | join(1)
mixed | join('|')
rows | join(',', attribute='name')
'abc' | join('.')
l | length
l | count
s | length
d | length
'ab' | list
d | list
l | map('string') | list
words | map('upper') | join
words | map('replace', 'a', 'z') | list
rows | map(attribute='tags', default='none') | list
rows | map(attribute='tags.0') | list | length
rows | map(attribute='age') | list
rows | selectattr('age', 'gt', 1) | map(attribute='name') | list
rows | selectattr('tags') | list | length
rows | selectattr('tags', 'defined') | map(attribute='name') | list
rows | rejectattr('tags', 'defined') | map(attribute='name') | list
rows | selectattr('name', 'equalto', 'x') | list
rows | selectattr('name', 'in', ['x', 'y']) | map(attribute='name') | list
rows | selectattr('tags', 'sequence') | list | length
l | select('odd') | list
l | reject('odd') | list
mixed | select('string') | list
mixed | reject('none') | list | length
mixed | select | list | length
none | selectattr('x') | list
[1, 2, 3, 4, 5] | batch(2) | list
[1, 2, 3] | batch(2, 'x') | list
x | round
2.675 | round(2)
0.5 | round
1.5 | round
7 | round
42.55 | round(1, 'floor')
42.51 | round(0, 'ceil')
1234.5 | round(-2)
x | int
'42' | int
'42.9' | int
'x' | int
'x' | int(-1)
' 12 ' | int
'1_0' | int
'ff' | int(base=16)
'0x1f' | int(0, 16)
none | int
true | int
'1.5' | float
'x' | float
'x' | float(2.5)
7 | float
'1e3' | float
'inf' | float
neg | abs
-2.5 | abs
none | default('x')
none | default('x', true)
'' | default('x', true)
missing | d
s | truncate(8)
s | truncate(8, true)
s | truncate(8, true, '~', 0)
long | truncate(20)
long | wordcount
'don_t a-b c' | wordcount
lines | indent
lines | indent(2, true)
lines | indent(2, blank=true)
lines | indent('> ')
'one' | indent
html | escape
html | e
html | safe
s | string
[1] | string
n | string | length
s | urlencode
u | urlencode
{'a b': 'c/d', 'e': 1} | urlencode
'a/b?c' | urlencode
d | attr('b') is defined
types | tojson
u | tojson
u | tojson(ensure_ascii=true)
ctl | tojson
quotes | tojson
html | tojson
types | tojson(indent=2)
types | tojson(indent=0)
types | tojson(indent='--')
types | tojson(separators=(',', ':'))
types | tojson(indent=4, separators=(', ', ' : '))
d | tojson(sort_keys=true)
{1: 'a', none: 'b', true: 'c', 1.5: 'd'} | tojson
[1, 2.0, 1e100, true, none, 'x', (1, 2), [], {}] | tojson
big | tojson
big
big is integer
empty | tojson(indent=2)
single
quotes
[single, quotes, 'plain']
ctl.split(' ')
[u]
tiny
huge
whole
[tiny, huge, 1e15, 1e16, 0.0001, 0.00001]
yes is true
yes is boolean
1 is true
no is false
1 is integer
true is integer
1.0 is float
1 is float
true is number
'1' is number
s is string
l is string
d is mapping
l is mapping
l is sequence
s is sequence
d is sequence
1 is sequence
l is iterable
s is iterable
1 is iterable
d.items() is sequence
d.items() is iterable
(l | map('string')) is iterable
(l | map('string')) is sequence
none is none
none is not none
s is not string
3 is odd
4 is even
9 is divisibleby 3
9 is divisibleby(2)
3 is eq 3
3 is equalto(3.0)
3 is ne 4
3 is lt 4
3 is greaterthan 2
3 is ge 3
3 is in [1, 2, 3]
'e' is in s
'abc' is lower
'ABC' is upper
'Abc' is upper
none is sameas none
true is sameas true
1 is sameas true
range is callable
s is callable
'upper' is filter
'nope' is filter
'defined' is test
s is string and s is not none
not s is string
n is divisibleby 7 and n is odd
namespace(a=1).a
namespace({'a': 1}, b=2).b
dict(a=1, b=2)
dict({'a': 1}, c=3) | length
dict([('a', 1), ('b', 2)])
joiner('-') is callable
cycler('a', 'b').next()
strftime_now('%Y-%m-%d %H:%M:%S %j %A %B %-d %%')
'\n\t\\\'\"' | tojson
'\x41\u00e9\U0001F336\101' 
'\q\d'
'a\
b'
"double \"quoted\""
'日本' ~ "é"
"%s" | format("100%")
(l | map('string') | list)[0]
((1, 2), [3, (4,)])
[[1, 2], [3]] | sum(start=[])
l == [3, 1, 2]
[3, 1, 2] | sort == [1, 2, 3]
words | map('length') | sum
"a" < "b" and "b" < "c" or false
{'x': {'y': 1}}['x']['y']
{'x': {'y': 1}}.x.y
'a,b'.split(',')[1] | upper
(n + 1) | string ~ '!'
n + 1 | string | length
-n | abs
(-n) | abs
s | length > 5
l[1:] | length == 2
(s, n)[1]
[1, 2, 3,]
{'a': 1,}
d.C + d['a']
missing | default(d.missing) | default('last')
nested | length
nested.a is mapping
s[:5] + '...' if s | length > 5 else s
""".strip("\n").split("\n")
# an entry that ends with a backslash goes on in the next line
_joined = []
for _line in EXPRESSIONS:
    if _joined and _joined[-1].endswith("\\"):
        _joined[-1] += "\n" + _line
    else:
        _joined.append(_line)
EXPRESSIONS = _joined

TEMPLATES = [
    "plain text {not a tag} %} }} #}",
    "{# comment #}a{#- b -#}\n\n c{# d #}\ne",
    "a\n{% if yes %}\nb\n{% endif %}\nc\n",
    "a\n  {% if yes %}\n  b\n  {% endif %}\nc\n\n",
    "  {%+ if yes %}x{% endif +%}\ny",
    "a  {%- if yes -%}  b  {%- endif -%}  c",
    "a \n {{- s -}} \n b",
    "  {{ s }}\n  {{ n }}\n",
    "x {% if yes %}1{% endif %}\n  {# c #}\ny",
    "{% raw %}{{ not }} {% if %}{% endraw %}!",
    "a\n  {% raw -%}  {{ x }} {%- endraw %}\nb",
    "{%- raw -%} {% x %} {%- endraw -%} z",
    "{% if no %}a{% elif n == 7 %}b{% elif yes %}c{% else %}d{% endif %}",
    "{% if no %}a{% else %}d{% endif %}",
    "{% if missing %}a{% endif %}{% if not missing %}b{% endif %}",
    "{% for i in l %}{{ i }},{% endfor %}",
    "{% for i in empty %}{{ i }}{% else %}none{% endfor %}",
    "{% for i in l if i > 5 %}{{ i }}{% else %}none{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k in d %}{{ k }}{% endfor %}",
    "{% for c in s %}{{ c }}.{% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3)), [4, [5, 6]]] %}{{ a }}{{ b }}{{ c }} {% endfor %}",
    "{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}"
    "{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }} {% endfor %}",
    "{% for i in l if i != 1 %}{{ loop.index }}/{{ loop.length }}{{ ',' if not loop.last }}{% endfor %}",
    "{% for i in l %}{{ loop.previtem is defined }}{{ loop.previtem }}-{{ loop.nextitem }} {% endfor %}",
    "{% for i in l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(i > 1) }}{% endfor %}",
    "{% for i in l %}{% for j in words %}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}",
    "{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in l %}{% for j in l %}{% if j == 1 %}{% break %}{% endif %}{{ j }}{% endfor %};{% endfor %}",
    "{% for item in [{'v': 1, 'c': [{'v': 2, 'c': []}, {'v': 3}]}] recursive %}{{ item.v }}@{{ loop.depth }}"
    "{% if item.c %}({{ loop(item.c) }}){% endif %}{% endfor %}",
    "{% set a = 1 %}{% for i in l %}{% set a = a + i %}{{ a }},{% endfor %}{{ a }}",
    "{% set ns = namespace(a=1) %}{% for i in l %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}",
    "{% set ns = namespace() %}{% set ns.x = 'v' %}{{ ns.x }}{{ ns.y is defined }}{{ ns['x'] }}",
    "{% set ns = namespace(go=true) %}{% for i in range(5) if ns.go %}{{ i }}{% if i == 2 %}{% set ns.go = false %}{% endif %}{% endfor %}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, d2) = (b, a) %}{{ c }}{{ d2 }}",
    "{% set t = 1, 2 %}{{ t }}",
    "{% if yes %}{% set inside = 'kept' %}{% endif %}{{ inside }}",
    "{% for i in [1] %}{% set inside = 'lost' %}{% endfor %}{{ inside is defined }}",
    "{% set x %}block {{ n }}{% endset %}{{ x | length }}{{ x }}",
    "{% set x | upper | replace('B', '8') %}block {{ n }}{% endset %}{{ x }}",
    "{% set x %}{% set y = 1 %}{% endset %}{{ y is defined }}",
    "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q is defined }}",
    "{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}",
    "{% set a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% endwith %}",
    "{% filter upper %}shout {{ s }}{% endfilter %}",
    "{% filter trim | replace('a', 'b') %}  aaa  {% endfilter %}|",
    "{% macro m(a, b='x', c=none) %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(1, c=3) }}{{ m(b=1, a=2) }}{{ m() }}",
    "{% macro m(a) %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, k='v') }}",
    "{% macro m(a, b=a ~ '!') %}{{ b }}{% endmacro %}{{ m('x') }}",
    "{% macro m() %}{{ outside }}{% endmacro %}{% set outside = 'late' %}{{ m() }}",
    "{% macro f(k) %}{% if k > 0 %}{{ k }}{{ f(k - 1) }}{% endif %}{% endmacro %}{{ f(4) }}",
    "{% macro m() %}{{ caller() }}|{{ caller() }}{% endmacro %}{% call m() %}in {{ n }}{% endcall %}",
    "{% macro m(xs) %}{% for x in xs %}{{ caller(x, loop.index) }}{% endfor %}{% endmacro %}{% call(v, i=0) m(l) %}<{{ v }}:{{ i }}>{% endcall %}",
    "{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}",
    "{% macro outer() %}{% macro inner() %}i{% endmacro %}{{ inner() }}{% endmacro %}{{ outer() }}{{ inner is defined }}",
    "{% macro m(x) %}{{ x }}{% endmacro %}{{ m(1) | length }}{{ m('ab') ~ m('c') }}{{ m is callable }}{{ m.name }}",
    "{% for i in l %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.current }}",
    "{% set j = joiner(', ') %}{% for i in l %}{{ j() }}{{ i }}{% endfor %}",
    "{% generation %}a{{ n }}{% endgeneration %}b{% set q = 1 %}",
    "{% for i in l %}{% generation %}{{ i }}{{ loop.index }}{% set z = 1 %}{% endgeneration %}{{ z is defined }}{% endfor %}",
    "{% print n, 'x' %}",
    "{{ 1, 2 }}",
    "{{ {'a': {'b': 1}} }}{{ '}}' }}{{ '%}' }}",
    "{{ {'a':{'b':{}}}}}",
    "{{ '{{' ~ '{%' ~ '{#' }}",
    "{% if 'x' in ['x'] %}in{% endif %}{% if not 'x' in ['y'] %}out{% endif %}",
    "{% if missing is defined and missing.x %}a{% else %}b{% endif %}",
    "{% if yes %}{{ n }}{% else %}{{ n | no_such_filter }}{% endif %}",
    "{{ 'x' if yes else n | no_such_filter }}",
    "{% set it = l | map('string') %}{{ it | join }}-{{ it | join }}",
    "{% set it = l | select('odd') %}{% for i in it %}{{ i }}{{ loop.last }}{% endfor %}",
    "{%- for message in rows -%}\n  {{- message['name'] + '\\n' -}}\n{%- endfor -%}\n",
    "{% set loop_messages = rows[1:] %}{% for m in loop_messages %}{{ m.name }}{{ loop.index0 % 2 == 0 }}{% endfor %}",
    "{% for i in l %}{{ i }}\n{% endfor %}\nend",
    "{% for i in l -%}\n  {{ i }}\n{%- endfor %}",
    "a{{ '\n' }}b\n\n",
    "\n\na",
    "{{ n }}\n",
    "{{ n }}\n\n",
    "\r\na\rb\n{{ 'x\r\ny' }}",
    "{% set content = '<think>t</think>\\n\\nanswer' %}{{ content.split('</think>')[-1].lstrip('\\n') }}{{ content.split('</think>')[0].rstrip('\\n').split('<think>')[-1] }}",
    "{% macro render(t, depth=0) %}{% if t is mapping %}{% for k, v in t | dictsort %}{{ '  ' * depth }}{{ k }}:\n{{ render(v, depth + 1) }}{% endfor %}{% elif t is iterable and t is not string %}{% for v in t %}{{ render(v, depth) }}{% endfor %}{% else %}{{ '  ' * depth }}{{ t }}\n{% endif %}{% endmacro %}{{ render(types) }}",
    "{% if (yes and (no or (n > 3))) %}p{% endif %}",
    "{%if yes%}tight{%endif%}{{n}}{{-n-}}",
    "{% for x in missing %}a{% else %}b{% endfor %}",
    "{% set ns = namespace(f=false, i=0) %}{% for m in rows %}{% if not ns.f and m.age == 1 %}{% set ns.f = true %}{% set ns.i = loop.index0 %}{% endif %}{% endfor %}{{ ns.f }}{{ ns.i }}",
    "{% call(x) (missing or range) (3) %}{% endcall %}" if False else "{{ range(3) | list }}",
    "{{- '' if loop is defined else 'no loop' }}",
    "{% for i in l: %}{{ i }}{% endfor %}",
    "{% set d2 = dict(d, z=9) %}{{ d2.z }}{{ d2 | length }}",
    "{% set m = {'role': 'x'} %}{{ m['role'] == 'x' and 'ok' }}",
    "{{ ('a' ~ 'b') | upper }}{{ 'a' ~ 'b' | upper }}",
]

FAILING = [
    "{{ missing.x }}", "{{ missing['x'] }}", "{{ missing() }}", "{{ missing + 1 }}", "{{ 'a' + missing }}", "{{ missing < 1 }}",
    "{{ -missing }}", "{{ missing | int }}", "{{ missing | tojson }}", "{{ d.missing.x }}", "{{ 'a' + 1 }}", "{{ 1 + 'a' }}",
    "{{ l + 'a' }}", "{{ none + 1 }}", "{{ 1 / 0 }}", "{{ 1 % 0 }}", "{{ 1 // 0 }}", "{{ 'a' < 1 }}", "{{ none < 1 }}", "{{ l < d }}",
    "{{ 1 in 2 }}", "{{ 1 in 'a' }}", "{% for i in 5 %}{% endfor %}", "{% for i in none %}{% endfor %}", "{% for a, b in l %}{% endfor %}",
    "{{ l.append(1) }}", "{{ d.update({}) }}", "{{ d.pop('a') }}", "{{ l.sort() }}", "{{ s() }}", "{{ 5() }}", "{{ none.x.y }}",
    "{{ n | length }}", "{{ none | length }}", "{{ l | map('nope') | list }}", "{{ l | select('nope') | list }}", "{{ s | nope }}", "{{ s is nope }}",
    "{{ raise_exception('stop') }}", "{{ range(200000) }}", "{{ range(1, 2, 0) }}", "{% set s.x = 1 %}", "{% set d.x = 1 %}",
    "{{ s.nope() }}", "{{ s.split('') }}", "{{ s.index('zz') }}", "{{ l.index(99) }}", "{{ s.replace('a') }}", "{{ s.upper(1) }}",
    "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(b=1) }}", "{{ '%d' % 'x' }}", "{{ '%s %s' % ('a',) }}",
    "{{ '%s' % (1, 2) }}", "{{ '{}'.format() }}", "{{ '{x}'.format(y=1) }}", "{{ ', '.join(l) }}", "{{ s[::0] }}", "{{ {[1]: 2} }}", "{{ d | items | length }}",
    "{{ words | sum }}", "{{ mixed | sort }}", "{{ (l | map('string')) | length }}", "{{ (l | map('string')) | last }}",
    "{% if %}{% endif %}", "{% if yes %}", "{% for i in l %}", "{% endif %}", "{{ }}", "{{ 1 + }}", "{{ (1 }}", "{{ [1 }}", "{{ 1 ) }}", "{{ 'open }}",
    "{{ n", "{% if yes", "{# open", "{% nope %}", "{% set %}", "{% set 5 = 1 %}", "{% set true = 1 %}", "{% for in l %}{% endfor %}", "{% for i l %}{% endfor %}",
    "{% break %}", "{% continue %}", "{% else %}", "{{ a b }}", "{{ a. }}", "{{ a | }}", "{{ a is }}", "{{ f(a=1, 2) }}", "{{ 1 if }}", "{{ @ }}", "{{ a ! b }}",
    "{% macro m(a=1, b) %}{% endmacro %}", "{% macro %}{% endmacro %}", "{% for loop in l %}{{ loop.index }}{% endfor %}", "{% call 5 %}{% endcall %}",
    "{% if yes %}{% endfor %}", "{{ loop.cycle() }}", "{% for i in l %}{{ loop(l) }}{% endfor %}", "{{ 1 is divisibleby }}", "{{ x is string is none }}",
]
