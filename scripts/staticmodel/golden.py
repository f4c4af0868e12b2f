"""Texts, and what the reference tokenizer and numpy make of them."""

import random

import numpy as np

SPECIAL = (0, 100, 101, 102, 103)  # [PAD] [UNK] [CLS] [SEP] [MASK]

ORDINARY = [
    "When does the breaker open?",
    "The quick brown fox jumps over the lazy dog.",
    "Embeddings are the mean of token vectors, scaled to length one.",
    "func (b *Breaker) Allow(ctx context.Context) (*Permit, error) {",
    "for i in range(10):\n    print(f\"{i:>3}\\t{i**2}\")\n",
    "SELECT id, sha FROM chunk WHERE doc = 'x' AND ordinal >= 12;",
    "https://example.org/a/b?c=d&e=f#frag user@example.com +49 (0)30 1234-567",
    "| name | state |\n|------|-------|\n| milvus | open |",
    "It's 3.14159, isn't it? No — 2,718 is e×1000… roughly 100% wrong.",
    "MiXeD CaSe ACRONYMS like HTTP2, TLS1.3, SHA-256 and iPhone",
    "don't won't can't I'll we've you're",
    "internationalization antidisestablishmentarianism supercalifragilisticexpialidocious",
]

AWKWARD = [
    "",
    " ",
    "\t\n\r ",
    "naïve café façade Ångström Über coöperate résumé",
    "cafe\u0301 e\u0301\u0302 a\u030a\u0323 I\u0307stanbul",
    "İSTANBUL ıstanbul ΑΣΦΑΛΗΣ ὈΔΥΣΣΕΎΣ ﬁne ﬂow ſt ẞ straße",
    "中文字符和English混在一起。日本語のテキスト、カタカナ。",
    "\u4e00\u3400\U00020000\U0002a700\uf900\U0002f800",
    "안녕하세요 세계 각 힣 ᄀ",
    "Привет, мир! Ёлка й",
    "مرحبا بالعالم السَّلَامُ",
    "שָׁלוֹם עולם",
    "नमस्ते दुनिया क़ हिन्दी",
    "สวัสดีชาวโลก ภาษาไทย",
    "Xin chào thế giới Việt Nam",
    "🙂🙂 👨\u200d👩\u200d👧 🇩🇪 ❤\ufe0f",
    "word🙂word",
    "zero\u200bwidth soft\u00adhyphen bom\ufeff rtl\u202emark",
    "nul\x00 bell\x07 esc\x1b[31m del\x7f c1\x85x\x9f",
    "replacement \ufffd here, private \ue000 use, unassigned \u0378 and \U000e0041 tags",
    "nbsp\u00a0em\u2003space\u3000ideographic\u2028line\u2029para\u1680ogham\u205fmath\u202fnarrow",
    "quotes “double” ‘single’ «guillemets» „low“ ‹x› 「角」",
    "dashes - – — ― ‐ ‑ − ~ ∼ _ underscore__twice",
    "symbols $ € £ ¥ © ® ™ § ¶ † ‡ • · ° ± × ÷ ≤ ≠ ∞ √ ∑ π µ Ω ℃ № ½ ² ₂ Ⅳ ①",
    "ascii !\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ done",
    "Greek question mark \u037e and ano teleia \u0387",
    "[CLS] literal [SEP] specials [MASK] [PAD] [UNK] in text",
    "[cls] [Sep] [CLS][SEP]x[MASK]y [ CLS ] [CLS",
    "[unused0] [unused99] ##ing ## ## ##a",
    "a" * 99,
    "a" * 100,
    "a" * 101,
    "é" * 100 + " " + "é" * 101,
    "x" * 100 + "." + "x" * 101 + ".",
    "ab" * 500 + " tail",
    "가" * 33 + " " + "가" * 50,
    "\U0001d400\U0001d401 mathematical bold, fullwidth ＡＢＣ１２３，ｈａｌｆ ｱｲｳ",
    "ﷺ ﻻ ǅ ŉ ǰ ΐ",
    "\u302e\u302f a\u302eb \u0898\u07fd \U0001d15e",
    "1\u0301 2\u20dd \u0301\u0301\u0301 lone marks",
    "\u1100\u1161\u11a8 jamo \u3131\u314f",
    "tokenizer's WordPiece: [UNK]-free? #hashtag @mention 50,000+ café's",
    "\U0010ffff\ufffe\uffff noncharacters",
]


def random_texts(n, seed=1):
    """Mixtures from every range that the normaliser treats in its own way."""
    r = random.Random(seed)
    ranges = [(0x20, 0x7F)] * 6 + [(0, 0x300), (0x300, 0x370), (0x370, 0x1000), (0x1000, 0x2000), (0x2000, 0x3000),
        (0x3000, 0xD800), (0xAC00, 0xD7A4), (0xE000, 0x10000), (0x10000, 0x20000), (0x20000, 0x30000), (0xE0000, 0x110000)]
    for _ in range(n):
        picked = r.sample(ranges, 3)
        yield "".join(chr(r.randrange(*r.choice(picked))) for _ in range(r.randrange(1, 60)))


def vector(ids, table, scale):
    ids = [i for i in ids if i not in SPECIAL]
    if not ids:
        return None
    v = (table[ids].astype(np.float64) * scale[ids].astype(np.float64)).mean(0)
    return v / np.linalg.norm(v)


def rows(tokenizer, table, scale):
    """One row a text: its token ids, and the vector for the written texts (None where no token is known)."""
    out = []
    for text in ORDINARY + AWKWARD + [" ".join(ORDINARY) * 20]:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        v = vector(ids, table, scale)
        out.append({"text": text, "ids": ids, "vector": None if v is None else [round(float(x), 9) for x in v]})
    for text in random_texts(400):
        out.append({"text": text, "ids": tokenizer.encode(text, add_special_tokens=False).ids})
    return out
