"""A megabyte of mixed text, the same every time: what tokenizers get wrong when they get something wrong.

Characters are those of Unicode 14, which PCRE2 10.42 and Python 3.11 know: later letters are no letters to them yet.
"""
import random
import unicodedata

CODE = [
    "def f(x):\n    return [i**2 for i in range(x) if i % 3 == 0]  # cubes?\n",
    "#include <vector>\r\nint main(int argc, char** argv) {\r\n\treturn std::vector<int>{1, 22, 333}.size();\r\n}\r\n",
    "SELECT a.id, COUNT(*) FROM t AS a WHERE a.x != 'O''Reilly' GROUP BY 1;\n",
    "<div class=\"x\" id='y'>&nbsp;&amp;<br/></div>\n\n\n",
    "for (let i=0;i<10_000;++i){ console.log(`v=${i}`); }\t\t\n",
    "\tif err != nil {\n\t\treturn nil, fmt.Errorf(\"open %q: %w\", path, err)\n\t}\n",
    '{"key": [1, 2.5e-10, null, true], "nested": {"a\\u00e9": "\\n"}}\n',
    "pub fn main() -> Result<(), Box<dyn Error>> { Ok(()) }\n",
]
WORDS = (
    "the quick brown fox jumps over a lazy dog I'm don't they're WE'LL you'd I'VE it'S o'clock HTTPServer camelCase "
    "snake_case kebab-case naïve café résumé Straße ﬁne ŒUVRE Ångström İstanbul ſlow 3.14159 1,000,000 2024-02-29 "
    "12345 007 1st 22nd ①②③ ½ ⅷ ٣٤٥ १२३ x² H₂O e=mc² user@example.com https://example.com/a?b=c#d C++ F# .NET "
    "U.S.A. ... --- !!! ??? $100 €99 £5 ¥1000 50% #tag @name ~/path \\n \\u0041 «quoted» “smart” ‘quotes’ – — …"
).split()
SCRIPTS = [
    "안녕하세요 세계 한국어 토큰화 시험입니다 대한민국 서울특별시 ㅋㅋㅋ ㅠㅠ",
    "\u1112\u1161\u11ab\u1100\u1173\u11af decomposed \u110b\u116e\u1105\u1175",
    "สวัสดีชาวโลก ภาษาไทยไม่มีช่องว่างระหว่างคำ กรุงเทพมหานคร ๑๒๓",
    "مرحبا بالعالم اللغة العربية تُكتب من اليمين إلى اليسار ١٢٣ لا إله",
    "שלום עולם עברית עם נִיקּוּד",
    "你好，世界。中文分词测试：一二三、四五六！２０２４年",
    "こんにちは世界。日本語のテスト、カタカナとひらがな、ｶﾞｷﾞｸﾞ 漢字",
    "नमस्ते दुनिया हिन्दी में परीक्षण क्षत्रिय",
    "Привет, мир! Съешь же ещё этих мягких французских булок",
    "Γειά σου Κόσμε, ὁ λόγος σαφής ς",
    "မင်္ဂလာပါ ကမ្ពុជា ລາວ ქართული հայերեն ትግርኛ",
    "Việt Nam tiếng Việt có nhiều dấu: ắ ằ ẳ ẵ ặ",
    "a\u0301e\u0300i\u0302o\u0303u\u0308n\u0327 combining z\u0335\u0322\u0321a\u0336\u0323lgo \u0301lead",
]
EMOJI = [
    "😀😂🤣", "👩‍👩‍👧‍👦", "👨🏽‍💻", "🏳️‍🌈", "🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f", "🇩🇪🇰🇷", "1️⃣#️⃣", "❤️‍🔥", "🌶", "🧑🏿‍🤝‍🧑🏻",
]
SPACES = [
    " ", "  ", "   ", " " * 7, " " * 33, " " * 200, "\t", "\t\t", "\n", "\r\n", "\n\n", "\r\n\r\n", "\r", " \n", "\n ",
    "\n  \n", " \t \n\t", "\u00a0", "\u3000", "\u2003\u2009", "\u2028", "\u0085", "\u200b", "\ufeff", "\u180e", "\x0b\x0c",
]
CONTROL = ["\x00", "\x01\x02", "\x1b[31m", "\x7f", "\x1c\x1d\x1e\x1f", "\u0090", "\ufffd", "\ufffe", "\ue000", "\U0010ffff"]
MARKERS = [
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>",
    "<｜begin▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<think>", "</think>", "<|EOT|>", "<repo_name>",
    "<|im_end", "|im_end|>", "< |im_end|>", "<<|im_end|>>", "<s>", "</s>", "[INST]", "<0x0A>", "▁", "Ġ", "Ċ",
    " <|im_end|> ", "<|im_start|>user\n", "<|reserved_special_token_7|>", "<｜tool▁calls▁begin｜>",
]


def is_assigned(character):
    return unicodedata.category(character) not in ("Cn", "Cs")


def mixed_text(size=1_000_000, seed=7):
    """size bytes of UTF-8, give or take the last piece."""
    rng = random.Random(seed)
    sources = [CODE, WORDS, WORDS, WORDS, SCRIPTS, EMOJI, CONTROL, MARKERS]
    parts, length = [], 0
    while length < size:
        kind = rng.choice(sources)
        part = rng.choice(kind)
        if kind is SCRIPTS and rng.random() < 0.5:  # a part of it, perhaps cut inside a cluster
            begin = rng.randrange(len(part))
            part = part[begin : begin + rng.randrange(1, 30)]
        if kind is WORDS and rng.random() < 0.3:
            part = rng.choice([part.upper(), part.capitalize(), part * 2, part + str(rng.randrange(10**6))])
        part += rng.choice(SPACES) if rng.random() < 0.6 else ""
        if rng.random() < 0.01:
            part += "".join(c for c in (chr(rng.randrange(0x20, 0x1FFFF)) for _ in range(12)) if is_assigned(c))
        parts.append(part)
        length += len(part.encode())
    return "".join(parts)


def all_characters():
    """Every character once, in an order that mixes neighbours' classes, a line of 64 each."""
    characters = [c for c in map(chr, range(0x110000)) if is_assigned(c)]
    random.Random(11).shuffle(characters)
    return "\n".join("".join(characters[i : i + 64]) for i in range(0, len(characters), 64))
