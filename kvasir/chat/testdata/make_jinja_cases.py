#!/usr/bin/env python3
"""Writes jinja_cases.jsonl: what Python's jinja2 makes of each template below, in the environment of
Hugging Face transformers. Made with Python 3.11 and jinja2 3.1.6; run it again with the same versions
after adding a template. It does not cover whole chat templates: the golden cases do."""
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

# One expression per line.
EXPRESSIONS = r'''s|upper
s|lower
u|upper
u|lower
u|title
u|capitalize
u.title()
u.swapcase()
u.casefold()
u|length
u[::-1]
u[2:5]
u[-3:]
s[1]
s[-1]
s[100]
s[::2]
s[::-2]
s[5:1:-1]
s[10:2]
l[::-1]
l[5:]
l[-2:]
l[:-1]
l[1:][0]
m[0].role
m[0]['role']
m[-1].content
m[7]
m[7].x
m.foo
m.foo.bar
nest.a.b.c
nest.items
nest['items']
nest.items()
nest.items()|list
nest.keys
nest['keys']
d.items()
d.keys()
d.values()
d.keys()|list
d|items
d|items|list
d|dictsort
d|dictsort(true)
d|dictsort(by='value')
d|dictsort(reverse=true)
d|dictsort(false,'key',true)
{'a':1,'b':2}|dictsort(by='value',reverse=true)
ls|sort
ls|sort(reverse=true)
ls|sort(case_sensitive=true)
m|sort(attribute='role')
m|sort(attribute='n')
m[:2]|sort(attribute='n')
m[:2]|sort(attribute='role,n')|map(attribute='content')|list
l|sort|join(',')
l|join
l|join(', ')
m|join(',', attribute='role')
m|map(attribute='role')|list
m|map(attribute='n', default=9)|list
m|map(attribute='n')|list
ls|map('upper')|join
ls|map('replace','b','zz')|list
m|selectattr('role','equalto','user')|list
m|selectattr('role','equalto','user')|map(attribute='content')|join('|')
m|rejectattr('role','equalto','user')|list|length
m|selectattr('n')|list|length
m|selectattr('n','defined')|list|length
m|rejectattr('n','defined')|list
l|select('odd')|list
l|reject('odd')|list
l|select('greaterthan',1)|list
l|select|list
[0,1,'',none,'a']|select|list
l|select('in',[1,2])|list
m|groupby('role')
m|groupby('role')|list
ls|groupby(0)
ls|unique|list
[1,1,2,'a','A']|unique|list
ls|min
ls|max
l|min
l|max
[]|min
[]|max
l|sum
m|sum(attribute='n')
m[:2]|sum(attribute='n')
m[:2]|sum(attribute='n',start=10)
l|first
l|last
[]|first
[]|last
'abc'|first
'abc'|last
d|first
d|last
l|reverse|list
'abc'|reverse
l|reverse
d|reverse|list
l|batch(2)|list
l|batch(2,'x')|list
l|slice(2)|list
l|slice(2,'x')|list
range(10)|slice(3)|list
range(7)|batch(3)|list
l|length
d|length
range(5)|length
nn|length
n|length
undef|length
l|map('upper')|length
l|count
s|count
s|wordcount
u|wordcount
s|center(21)
s|center(20)
s.center(22,'*')
'ab'.center(5,'*')
'abc'.center(6,'*')
'abc'.center(8,'*')
s.ljust(15,'.')
s.rjust(15)
'42'.zfill(5)
'-42'.zfill(5)
'+4'.zfill(1)
s.split()
s.split('o')
s.split('o',1)
s.rsplit('o',1)
ws.split()
ws.split(' ')
ws.split(none,1)
ws.rsplit(none,1)
ws.rsplit(none,0)
ws.split(none,0)
ws.split(maxsplit=1)
s.split('')
'a,b,c'.split(',')[-1]
'a,b,c'.rsplit(',',1)
s.partition(' ')
s.rpartition('o')
s.partition('zz')
s.rpartition('zz')
ml.splitlines()
ml.splitlines(true)
ml|indent
ml|indent(2)
ml|indent(2,true)
ml|indent(width=3,first=true,blank=true)
ml|indent('> ')
'a

b'|indent(2,false,true)
e|indent
s.find('o')
s.find('z')
s.rfind('o')
s.find('o',5)
s.find('o',-3)
u.find('ß')
s.index('o')
s.index('z')
s.count('l')
s.count('')
s.startswith('He')
s.startswith(('x','H'))
s.endswith('ld')
s.endswith(('a','b'))
s.startswith('W',6)
s.startswith('',20)
s.startswith(1)
s.strip('Hd')
ws.strip()
ws.lstrip()
ws.rstrip()
ws|trim
s|trim('Hd')
'xxaxx'.strip('x')
'xxaxx'.lstrip('x')
'xxaxx'.rstrip('x')
s.replace('l','L')
s.replace('l','L',1)
s.replace('','-')
s.replace('','-',3)
''.replace('','x')
s|replace('l','L')
s|replace('l','L',1)
n|replace('5','6')
s|replace('o',1)
s.removeprefix('He')
s.removesuffix('ld')
'a	bc	d'.expandtabs()
'a	bc	d'.expandtabs(4)
'abc'.isalpha()
'123'.isdigit()
'12a'.isalnum()
'²'.isdigit()
'²'.isdecimal()
'½'.isnumeric()
' '.isspace()
''.isspace()
'Abc'.istitle()
'ABC'.isupper()
'abc1'.islower()
'a b'.isidentifier()
'abc'.isascii()
'abc'.isprintable()
','.join(ls)
','.join(l)
','.join(d)
','.join('abc')
'%s and %s' % ('a', 1)
'%s' % 'x'
'%s' % l
'%d' % 3.7
'%05d|%-5d|%+d|%x|%X|%o|%e|%.2f|%g|%c|%%' % (1,2,3,255,255,8,1.5,2.345,0.0001,'z')
'%(a)s %(b)d' % {'a':1,'b':2}
'%s' % (1,2)
'%s %s' % (1,)
'%d' % 'x'
'%r' % 'x'
'%10.3s|' % 'abcdef'
'%-10s|' % 'abc'
'%5.1f|%#x|% d' % (3.14159,255,4)
'x' % 1
'%s' % nn
"%s %s"|format('a','b')
"%(x)s"|format(x=3)
'{} {}'.format(1,'a')
'{0} {1} {0}'.format(1,2)
'{a} {b[0]} {c.a}'.format(a=1,b=[1],c={'a':2})
'{:>5}|{:<5}|{:^5}|{:05d}|{:+.2f}|{:,}|{:x}|{:#b}|{:%}|{:e}'.format('a','b','c',42,3.14159,1234567,255,5,0.25,12345.678)
'{!r}'.format('a')
'{{}}'.format()
'{'.format()
'{:*^9}'.format('hi')
'{:.3}'.format('abcdef')
'{:_}'.format(1234567)
'{:10}|'.format(3)
'{:10}|'.format('a')
'{:10.2f}|'.format(2)
'{}'.format(nn)
'{:.2}'.format(3.14159)
'{}'.format(1.0)
'{0:{1}}'.format('a',5)
n+1
n-1
n*2
n/2
n//2
n%3
neg//2
neg%3
neg/2
n**2
2**-1
2**0.5
7//2.0
-7//2.0
-7%2.5
7.5%-2
1/0
1//0
1%0
1.0/0
n+f
f*2
t+1
t+t
-t
-n
+n
-s
n+s
s+n
s+nn
s+l
l+l
l+s
(1,2)+(3,)
l+(1,)
s*2
2*s
s*-1
l*2
s~n~nn~t~f~l
n~''
1<2<3
1<2>3
1==1.0
t==1
'1'==1
l==[3,1,2]
d=={'A':2,'b':1,'c':[1,'x',None,True,1.0]}
nn==none
undef==undef2
undef==none
undef!=1
1<'a'
'a'<'b'
[1,2]<[1,3]
(1,2)<(1,)
nn<1
undef<1
'a' in s
'W' in s
'z' not in s
1 in l
9 in l
'b' in d
'zz' in d
1 in s
'a' in nn
'a' in n
'a' in undef
l in d
nn in d
not t
not undef
not 1==2
not 'a' in s
t and n
e or 'x'
nn or undef or 0
undef and 1
1 if t else 2
1 if undef
1 if nn else 2 if e else 3
(1 if undef).foo
undef
undef.foo
undef['x']
undef()
undef+1
undef|upper
undef|trim
undef|list
undef|join(',')
undef|first
undef|last
undef|sort
undef|items|list
undef|dictsort
undef|tojson
undef|int
undef|float
undef|abs
undef|default('x')
undef|d
undef|string
undef|replace('a','b')
undef|indent
undef|map('upper')|list
undef|selectattr('x')|list
undef|sum
undef|min
undef|reverse|list
undef|batch(2)|list
undef|unique|list
undef|e
undef|safe
undef|wordcount
undef|capitalize
undef|title
undef[1:]
undef is iterable
undef is sequence
undef is callable
undef is string
undef is mapping
undef is number
undef is none
undef is defined
undef is undefined
undef is true
undef is false
undef in [1]
undef ~ 'x'
undef * 2
2 * undef
undef % 2
[undef]
[undef, 1]|join(',')
nn.foo
nn.foo.bar
nn['x']
nn[1:]
n.foo
n['x']
n.real
s.foo
s['foo']
s['upper']
s['upper']()
s.upper
l.append
l.append(1)
l.foo
l['x']
l[1.0]
l[t]
l['1']
d.pop
d.pop('a')
d.update({'x':1})
d.get('b')
d.get('zz')
d.get('zz',5)
d.get('b',5)
d.get(l)
d[0]
d[l]
d.b
d.zz
d.copy()
l.index(1)
l.index(9)
l.count(1)
l.copy()
(1,2).index(2)
'abc'.__class__
d.__class__
d._x
s.__len__()
m is sequence
m is iterable
m is mapping
d is mapping
d is sequence
d is iterable
s is sequence
s is iterable
s is string
n is iterable
n is number
t is number
t is integer
n is integer
f is integer
f is float
t is boolean
t is true
n is true
nn is none
nn is not none
n is odd
n is even
n is divisibleby 5
n is divisibleby(2)
n is eq 5
n is gt 4
n is lt(4)
n is in [1,5]
n is in(l)
n is not in [1]
s is lower
s is upper
'abc' is lower
n is sameas n
nn is sameas none
t is sameas true
l is sameas l
s is escaped
s|safe is escaped
'upper' is filter
'nope' is filter
'odd' is test
range is callable
s.upper is callable
l is callable
range(3) is sequence
range(3) is iterable
l|map('upper') is sequence
l|map('upper') is iterable
l|map('upper') is string
d.items() is sequence
d.items() is iterable
d.keys() is mapping
s is foo
s|foo
foo(1)
n is defined and n > 3
n is defined == true
not n is defined
x is not defined
m[0].role is string
n is string or t
range(3)
range(3)|list
range(1,10,3)|list
range(5,0,-2)|list
range(0)
range(3)[1]
range(3)[-1]
range(10)[2:4]
range(1,10,2)
range(1.5)
range('a')
range(1,2,0)
range(1000000)
range(100000)|length
dict(a=1,b=2)
dict({'a':1},b=2)
dict([('a',1)])
namespace(a=1).a
namespace(a=1).b
namespace({'a':1}).a
namespace()['x']
namespace(a=1)['a']
cycler(1,2).next()
cycler()
joiner()()
joiner('|')
raise_exception('boom')
strftime_now('%Y-%m-%d %H:%M:%S')
strftime_now('%d %b %Y %A %a %B %j %U %W %w %u %V %G %y %p %I %e %-d %-m %_d %c %x %X %D %F %T %R %n%t%% %s %h %C %g')
strftime_now('%Q %E %')
d|tojson
l|tojson
m|tojson
m|tojson(indent=2)
d|tojson(indent=4)
d|tojson(indent='--')
d|tojson(separators=(',',':'))
d|tojson(sort_keys=true)
d|tojson(indent=2,separators=(', ',': '))
u|tojson
u|tojson(ensure_ascii=true)
tab|tojson
q|tojson
ml|tojson
big|tojson
small|tojson
nn|tojson
t|tojson
(1,2)|tojson
{1:2,none:3,true:4,1.5:5}|tojson
range(3)|tojson
l|map('string')|tojson
l|map('string')|list|tojson
[]|tojson(indent=2)
{}|tojson(indent=2)
[[],{}]|tojson(indent=2)
d|tojson|safe
html|tojson
tab
[tab]
[q]
["it's"]
['"']
[u]
[ml]
['\x00\x1f\x7f\xa0\u2028']
l
d
m
(1,)
()
(1,2)
[()]
{}
[]
[none,true,1.0,'a']
nest
big
small
[1e16,1e15,123456789.123,0.1,1e-4,1e-5,1.0,100.0,-0.0,1e100]
0.1+0.2
1e308*10
3.0
3.14
1_000
0x1F
0b101
0o17
1e3
1.5e-3
f|int
'3.7'|int
'abc'|int
'abc'|int(9)
'0x1f'|int(0,16)
'1_0'|int
' 12 '|int
nn|int
l|int
t|int
'1e3'|float
'abc'|float
'inf'|float
'nan'|float
n|float
2.5|round
3.5|round
-2.5|round
2.675|round(2)
1234.567|round(-2)
2.1|round(method='ceil')
2.9|round(0,'floor')
2.123|round(2,'floor')
5|round
n|abs
neg|abs
f|abs
s|abs
'x'|string
n|string
l|string
5|string|length
html|e
html|escape
html|forceescape
html|e|e
html|safe
html|e + '<x>'
'<x>' + html|e
('<x>'|safe) + '<y>'
'<y>' + ('<x>'|safe)
('<x>'|safe) ~ '<y>'
('<x>'|safe).upper() + '<'
('<x>'|safe)|upper + '<'
('<%s>'|safe) % '<a>'
('<x>'|safe) * 2 + '<'
[html|e]|join('<')
(html|e)|replace('&','<') + '<'
(html|e)|trim + '<'
(html|e)|string + '<'
(html|e)[1:3] + '<'
html|striptags
html|urlencode
'a b/c?d=é'|urlencode
{'a':'b c','x':1}|urlencode
{'a':'<','b':none}|xmlattr
123456|filesizeformat
1|filesizeformat
999|filesizeformat
123456789|filesizeformat(true)
'foo bar baz qux'|truncate(9)
'foo bar baz qux'|truncate(9,true)
'foo bar baz qux'|truncate(11)
'foo bar baz qux'|truncate(9,true,'!',0)
'foo bar baz qux'|truncate(2)
s|title
'foo-bar (baz) [qux] {z} <y>'|title
"it's a test"|title
"it's a test".title()
'hELLO wORLD'|capitalize
d|attr('items')
d|attr('b')
s|attr('upper')
m|first
(m|first).role
(m|last)['content']
m|map(attribute='role')|unique|join
m|selectattr('role','eq','user')|first
m|selectattr('role','in',['user'])|list|count
(m|selectattr('role','equalto','user')) is defined
'yes' if m|selectattr('role','equalto','zzz') else 'no'
'yes' if (m|selectattr('role','equalto','zzz')|list) else 'no'
l|default('x')
e|default('x')
e|default('x',true)
e|default('x',boolean=true)
nn|default('x')
'a' 'b' "c"
'a\nb'
"a\tb\x41\u00e9\101"
'\q'
"\N{DASH}"
[1,2,3,]
{'a':1,}
(1,2,)
[1,2][0]
{'a':1}['a']
{'a':1}.a
[[1,2],[3]][0][1]
'abc'[1:][0]
l[0]+l[1]*l[2]
2+3*4**2
-2**2
2**3**2
not t and n
(not t) or n
n if not undef else 3
1 + (2 if t else 3)
[1,2] + [3] == [1,2,3]
n > 3 and s
l|length > 2
l|length == 3 and 'x'
n|string + 'a'
-n|abs
(-n)|abs
-1|abs
'a' ~ 1 + 2
1 + 2 ~ 'a'
'a' ~ 'b' * 2
1,2
1,
foo.0
l.0
l.1 + 1
m.0.role
d.c.3
*l
s.upper().lower().title()
s|upper|lower|title
s.upper()|lower
'%s' % s|upper
s[0]|upper
s . upper ( )
loop
self
caller
varargs
true
True
none
None
false == False
'a' is in 'abc'
'a' == 'a' is true
1 is number is true
n is divisibleby n
3 is odd and 4 is even
[1,2,3] is sequence and 'x' is string
u is string
[u,ws]|tojson
{'a':{'b':[1,{'c':2}]}}|tojson(indent=2)
lipsum
m|length - 1
loop.index
m[m|length-1].role
m[-1:][0].role
s[:3] ~ s[3:]
s[n-2]
s[f]
s[nn:2]
s[:nn]
s['a':]
l[::0]
l[1:2] == [1]
'a' < 1
[3,'a']|sort
[none,1]|sort
[true,0]|sort
['b',['a']]|sort
{'b':1,'a':'x'}|dictsort(by='value')
[1,[2]]|unique|list
[{'a':1}]|unique|list
'abc'|list
d|list
n|list
nn|list
nn|join(',')
n|join(',')
nn|upper
nn|trim
n|trim
t|lower
t|string|lower
nn|string
l|upper
s|upper()
s|upper(1)
s|replace('a')
s.upper(1)
s.split(',',1,2)
s.foo()
n()
l()
d()
namespace(1)
dict(1)
s|join('-')
s|map('upper')|join
d|map('upper')|join
d|join('-')
'abc'|random
[1.5,2]|sum
['a','b']|sum
[[1],[2]]|sum(start=[])
'1'|sum
'ab'|batch(1)|list
0 if '' else 1
'\u{41}'
{**d}
d|length is number
'a'.join(['x','y']) ~ 'z'
''.join(l|map('string'))
[l|map('string')]|length
(l|map('string'))[0]
(d.items())[0]
(d.items()|list)[0]
(d.items()|list)[0][1]
d.items()|first
d.items()|last
d.keys()|first
d|items|first
d|dictsort|first|last
d.items()|length
d.items()|sort
d.values()|list|length
n.bit_length()
f.is_integer()
2.0.is_integer()
'𝔘nicode'[0]
'👩‍👩‍👧'|length
'\ud83d\ude00'
"a" if s is string else "b"
"a" if (s is string) else "b"
s is string and s
'x' if n in [5] and n not in [6] else 'y'
'x' ~ (n if n else '') ~ 'y'
'\''
"\""
'a"b'
"a'b"
"""a"""
'''

# One template per line.
TEMPLATES = r'''{% for i in l %}{{ i }},{% endfor %}
{% for i in l -%}  {{ i }}  {%- endfor %}
{% for i in [] %}x{% else %}empty{% endfor %}
{% for i in undef %}x{% else %}empty{% endfor %}
{% for i in nn %}x{% endfor %}
{% for i in n %}x{% endfor %}
{% for k,v in d.items() %}{{ k }}={{ v }};{% endfor %}
{% for k,v in d|dictsort %}{{ loop.index }}:{{ k }}={{ v }};{% endfor %}
{% for k in d %}{{ k }}{% endfor %}
{% for a,b in [(1,2),(3,4)] %}{{ a }}{{ b }}{% endfor %}
{% for a,b in [(1,2,3)] %}{{ a }}{% endfor %}
{% for a,(b,c) in [(1,(2,3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}
{% for c in 'añb' %}[{{ c }}]{% endfor %}
{% for i in l if i > 1 %}{{ loop.index }}/{{ loop.length }}:{{ i }}{% if not loop.last %},{% endif %}{% endfor %}
{% for i in l if i > 5 %}{{ i }}{% else %}none{% endfor %}
{% for i in l %}{{ loop.first }}{{ loop.last }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }}|{% endfor %}
{% for i in l %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }};{% endfor %}
{% for i in l %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}
{% for i in l %}{{ loop.cycle('a','b') }}{% endfor %}
{% for i in l %}{{ loop.cycle() }}{% endfor %}
{% for i in [1,1,2,2,1] %}{{ loop.changed(i) }}{% endfor %}
{% for i in l %}{% for j in l %}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}
{% for i in l %}{% set outer = loop %}{% for j in 'ab' %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}
{% set x = 1 %}{% for i in l %}{% set x = i %}{{ x }}{% endfor %}{{ x }}
{% set x = 1 %}{% for i in l %}{{ x }}{% set x = i %}{% endfor %}{{ x }}
{% set ns = namespace(x=0) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}
{% set ns = namespace() %}{% set ns.a = 1 %}{{ ns.a }}{{ ns.b }}
{% set d.x = 1 %}
{% set undef.x = 1 %}
{% set a, b = 1, 2 %}{{ a }}{{ b }}
{% set a, b = [1,2,3] %}{{ a }}{{ b }}
{% set (a, b) = (1, 2) %}{{ a }}{{ b }}
{% set a = 1, 2 %}{{ a }}
{% set x %}hello {{ n }}{% endset %}[{{ x }}]
{% set x | upper %}hello {{ n }}{% endset %}[{{ x }}]
{% set x | upper | replace('H','J') %}hello {{ n }}{% endset %}[{{ x }}]
{% set ns = namespace(a='') %}{% set ns.a %}blk{% endset %}{{ ns.a }}
{% set y = 1 %}{% set x %}{% set y = 2 %}{{ y }}{% endset %}{{ x }}{{ y }}
{% if n > 3 %}a{% elif n > 1 %}b{% else %}c{% endif %}
{% if n > 13 %}a{% elif n > 1 %}b{% else %}c{% endif %}
{% if undef %}a{% else %}c{% endif %}
{% if t %}{% set z = 3 %}{% endif %}{{ z }}
{% if not t %}{% set z = 3 %}{% endif %}{{ z }}
{% if n > 3: %}a{% endif %}
{% macro f(a, b=2) %}{{ a }}-{{ b }}{% endmacro %}{{ f(1) }} {{ f(1,3) }} {{ f(b=5,a=4) }} {{ f() }} {{ f(1, b=9) }}
{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1,2) }}
{% macro f(a) %}{{ a }}{% endmacro %}{{ f(c=2) }}
{% macro f(a) %}{{ a }}|{{ varargs }}|{{ kwargs }}{% endmacro %}{{ f(1,2,3,x=4) }}
{% macro f(a,b=a) %}{{ b }}{% endmacro %}{{ f(7) }}
{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(3) }}
{% macro f() %}{{ x }}{% endmacro %}{% set x = 5 %}{{ f() }}
{% macro f() %}{% set x = 9 %}{{ x }}{% endmacro %}{% set x = 5 %}{{ f() }}{{ x }}
{% macro f() %}{{ caller() }}!{% endmacro %}{% call f() %}body{% endcall %}
{% macro f() %}{{ caller(1,2) }}!{% endmacro %}{% call(a,b) f() %}{{ a }}{{ b }}{% endcall %}
{% macro f() %}{{ caller() }}!{% endmacro %}{{ f() }}
{% macro f() %}x{% endmacro %}{% call f() %}body{% endcall %}
{% macro f() %}{% if caller %}{{ caller() }}{% else %}none{% endif %}{% endmacro %}{{ f() }}{% call f() %}b{% endcall %}
{% macro f() %}x{% endmacro %}{{ f }}{{ f.name }}
{% macro f(x) %}{{ x }}{% endmacro %}{{ f(1) ~ f(2) }}{{ f('a')|upper }}{{ f(1)|length }}{{ f(1) is string }}
{% macro f(a, b) %}{{ a }}{{ b is defined }}{% endmacro %}{{ f(1) }}
{% macro f(*a) %}{% endmacro %}
{% macro f(a=1,b) %}{% endmacro %}
{% for i in l %}{% macro g() %}{{ i }}{% endmacro %}{{ g() }}{% endfor %}
{% macro outer() %}{% macro inner() %}in{% endmacro %}{{ inner() }}{% endmacro %}{{ outer() }}{{ inner is defined }}
{% macro f(l) %}{% for x in l %}{% if x is sequence and x is not string %}[{{ f(x) }}]{% else %}{{ x }}{% endif %}{% endfor %}{% endmacro %}{{ f([1,[2,[3]],'ab']) }}
{% filter upper %}abc {{ n }}{% endfilter %}
{% filter upper|replace('A','Z') %}abc {{ n }}{% endfilter %}
{% filter indent(2) %}a
b{% endfilter %}
{% with a=1, b=2 %}{{ a }}{{ b }}{% endwith %}{{ a }}
{% with a=1, b=a %}{{ a }}{{ b }}{% endwith %}
{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}
{% raw %}{{ x }}{% if %}{% endraw %}
{%- raw -%}  {{ x }}  {%- endraw -%}  z
a {% raw %} b {% endraw %} c
{% raw %}
{% endraw %}
y
{# comment #}x{#- c -#} y
a  {#- c -#}  b
{# multi
line #}
z
{#
#}z
{# unterminated
{% if t %}unterminated
{{ unterminated
{{ 'abc }}
{% endif %}
{% foo %}
{% else %}
{{ }}
{% %}
{{ a b }}
{{ (1 }}
{{ [1 }}
{{ 1] }}
{{ {'a' 1} }}
{{ a..b }}
{{ a. }}
{{ | upper }}
{{ a | }}
{{ a is }}
{{ not }}
{{ 1 + }}
{% set %}
{% set x %}
{% set x = %}
{% set 1 = 2 %}
{% set true = 2 %}
{% for in l %}{% endfor %}
{% for x l %}{% endfor %}
{% for x in %}{% endfor %}
{% for x in l %}{% endif %}
{% break %}
{% if t %}{% continue %}{% endif %}
{% for i in l %}{% if i == 1 %}{% break %}{% endif %}{{ i }}{% endfor %}
{% for i in l %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}
{% for i in l %}{% break %}{% else %}e{% endfor %}
{% for i in l %}{% for j in l %}{% if j == 1 %}{% break %}{% endif %}{{ j }}{% endfor %};{% endfor %}
{% for i in l %}{% if i == 1 %}{% continue %}{% endif %}{{ loop.index }}{{ loop.previtem }}{% endfor %}
{% generation %}abc{{ n }}{% endgeneration %}x
{% set q = 1 %}{% generation %}{% set q = 2 %}{{ q }}{% endgeneration %}{{ q }}
{% for i in l %}{% generation %}{{ i }}{{ loop.index }}{% endgeneration %}{% endfor %}
{% block b %}block {{ n }}{% endblock %}
{% block b %}block{% endblock b %}
{% set z = 3 %}{% block b %}{{ z }}{% endblock %}
{% for i in l %}{% block b %}{{ i }}{% endblock %}{% endfor %}
{% include 'x' %}
{% import 'x' as y %}
{% extends 'x' %}
{% autoescape true %}x{% endautoescape %}
{% autoescape false %}{{ html }}{% endautoescape %}
{% print n %}
{% print n, s %}
{% do l.append(1) %}
{% for x in [[1,[2]],[3]] recursive %}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}@{{ loop.depth }}{% endif %}{% endfor %}
{% for x in [1] %}{{ loop([1]) }}{% endfor %}
{% for x in l recursive %}{{ x }}{% endfor %}
{% for x in l if x > 1 recursive %}{{ x }}{% endfor %}
{% set c = cycler('a','b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.next() }}
{% set j = joiner(', ') %}{% for i in l %}{{ j() }}{{ i }}{% endfor %}
{% set it = l|map('string') %}{{ it|first }}{{ it|first }}{{ it|list }}{{ it|list }}
{% set it = l|map('string') %}{% for x in it %}{{ x }}{% endfor %}{% for x in it %}{{ x }}{% else %}used{% endfor %}
{% set it = l|select('odd') %}{{ 3 in it }}{{ it|list }}
{% for m_ in m if m_.role == 'user' and not loop %}{{ m_.content }}{% endfor %}
{% set ns = namespace(stop=false) %}{% for i in l if not ns.stop %}{{ i }}{% set ns.stop = true %}{% endfor %}
{% set ns = namespace(stop=false) %}{% for i in l if not ns.stop %}{{ i }}{{ loop.last }}{% set ns.stop = true %}{% endfor %}
{% set ns = namespace(l=[]) %}{% for i in l %}{% set ns.l = ns.l + [i] %}{% endfor %}{{ ns.l }}
{% set ns = namespace(a=1) %}{% macro f() %}{% set ns.a = 2 %}{% endmacro %}{{ f() }}{{ ns.a }}
{% set messages = m[1:] %}{{ messages|length }}
{% if m[0].role == 'system' %}s{% else %}{% set sys = 'def' %}{% endif %}{{ sys }}
{{ '{{' }}{{ "}}" }}{{ '%}' }}
{{ {'a':{'b':1}} }}
{{ {'a':{'b':1}}['a']['b'] }}
{{- n -}} x {{- n }}
  {{- n }}  x
  {% if t %}
  x
  {% endif %}
y
  {%- if t %}
  x
  {%- endif %}
y
  {%+ if t %}
  x
  {%+ endif +%}
y
a {% if t %} b {% endif %} c
{% if t -%}
   x
{%- endif %}
{% if t %}
{% endif %}
y
x{% if t %}
y{% endif %}
z
	{% if t %}tab{% endif %}
  {{ n }}
  {# c #}
  x
  {# c #} y
x {# c #}
y
{{ n }}
{{ n }}
{% set a = 1 %}
{% set b = 2 %}
{{ a }}{{ b }}
{%set a=1%}{{a}}
{%-set a=1-%} {{a}}
{{ x.y.z if x is defined else 'no' }}
{{ x.y if x else 'no' }}
{% if x and x.y %}a{% else %}b{% endif %}
{% if x is defined and x.y %}a{% else %}b{% endif %}
{{ foo|default('a')|upper }}
{{ (foo|default('a')).upper() }}
{{ 'a'
 ~ 'b' }}
{{ [1,
2] }}
{{ "line
two" }}
{% for i in range(3) %}{{ i }}{% if not loop.last %}, {% endif %}{% endfor %}
{% for i in range(n, 0, -1) %}{{ i }}{% endfor %}
{% for x, y in zip(l, l) %}{% endfor %}
{{ raise_exception() }}
{% if false %}{{ raise_exception('x') }}{% endif %}ok
{% if false %}{{ x|nofilter }}{% endif %}ok
{{ x|nofilter if false else 'ok' }}
{{ 'ok' if true else x|nofilter }}
{{ x is notest if false else 'ok' }}
{% macro f() %}{{ x|nofilter }}{% endmacro %}ok
{% for i in [] %}{{ x|nofilter }}{% endfor %}ok
{% set x = 5 %}{% macro m2(x) %}{{ x }}{% endmacro %}{{ m2(x+1) }}{{ x }}
{% macro args() %}{{ varargs|join(',') }}{% endmacro %}{{ args(*l) }}{{ args(1,*l) }}
{% macro kw() %}{{ kwargs|dictsort }}{% endmacro %}{{ kw(**{'a':1,'b':2}) }}{{ kw(z=1,**{'a':1}) }}
{{ dict(**d) }}
{{ '{a}'.format(**{'a':1}) }}
{% set _ = 1 %}{{ _ }}
{% set x = x|default('d') %}{{ x }}
{% set n = n + 1 %}{{ n }}
{% for n in l %}{{ n }}{% endfor %}{{ n }}
{% for item in l %}{% if loop.first %}{% set first = item %}{% endif %}{{ first }}{% endfor %}
{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}
{{ b2() }}{% macro b2() %}B{% endmacro %}
{% if n == 5 and (m|length) == 3 %}y{% endif %}
{% if "u" in m[0]["role"] and m[0]["content"] is not none %}y{% endif %}
{% if m[0].tool_calls is defined and m[0].tool_calls is iterable and m[0].tool_calls | length > 0 %}y{% else %}n{% endif %}
{% if m[0].content is string %}s{% elif m[0].content is iterable %}i{% endif %}
{%- for message in m %}{%- if (message.role == "user") or (message.role == "system" and not loop.first) %}{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}{%- endif %}{%- endfor %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=m|length - 1) %}{%- for message in m[::-1] %}{%- set index = (m|length - 1) - loop.index0 %}{{ index }}{%- endfor %}{{ ns.last_query_index }}
{{ m[0].content.split('h')[-1].lstrip('\n') }}
{{ (m[0].content|trim).split('\n')[0] }}
{% for x in m|map(attribute='content')|list %}{{ loop.index0 }}{{ x }}{% endfor %}
{% for tool in [{'function':{'name':'f','parameters':{'properties':{'a':{'type':'string'}}}}}] %}{{ tool.function.parameters.properties.items()|list }}{{ tool|tojson(indent=4) }}{% endfor %}
{% for k, v in nest.a.b.items() %}{{ k }}{{ v }}{% endfor %}
{{ '\n'.join(['a','b']) }}|{{ "\n" ~ 'x' }}
'''

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


def main():
    environment = make_environment()
    templates = ["{{ " + line + " }}" for line in EXPRESSIONS.splitlines() if line]
    templates += [line for line in TEMPLATES.splitlines() if line] + WHITESPACE
    path = pathlib.Path(__file__).with_name("jinja_cases.jsonl")
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
