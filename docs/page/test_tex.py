"""All equations of all chapters can be parsed. A few outputs are compared, and errors have messages."""

import re
import unittest
from pathlib import Path
from xml.etree import ElementTree

import tex
from sources import layout

ROOT = Path(__file__).resolve().parents[2]
PARTS = layout.layers_and_blocks(ROOT)
CHAPTERS = [*(files.chapter for files in PARTS), "docs/conventions.md"]

BLOCK = re.compile(r"^```math\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"\$`(.+?)`\$|`[^`\n]+`|\$([^$`\n]+)\$")
HEADER = re.compile(r"^//   (\S.*?)\s+\((\w+\.\d+)\)$", re.MULTILINE)


def equations() -> list:
    """Every equation of every chapter: (file, equation, true: displayed)."""
    found = []
    for path in CHAPTERS:
        text = (ROOT / path).read_text(encoding="utf-8")
        found += [(path, match[1], True) for match in BLOCK.finditer(text)]
        prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
        found += [(path, match[1] or match[2], False) for match in INLINE.finditer(prose) if match[1] or match[2]]
    return found


def tagged() -> dict:
    split = [tex.split_tag(equation) for _, equation, display in equations() if display]
    return {tag: equation for equation, tag in split if tag}


class Chapters(unittest.TestCase):
    def test_every_equation_becomes_mathml_and_plain_text(self):
        found = equations()
        self.assertGreater(len(found), 1000)
        for name, equation, display in found:
            with self.subTest(chapter=name, equation=equation):
                equation, _ = tex.split_tag(equation)
                element = ElementTree.fromstring(tex.mathml(equation, display))
                self.assertEqual(element.tag, "math")
                self.assertNotRegex("".join(element.itertext()), r"[\\$~&]")
                self.assertRegex(tex.plain(equation), r"^[^\\$~&\n]+$")

    def test_every_tag_is_split_off(self):
        for name, equation, display in equations():
            if display and r"\text{(" in equation:
                self.assertIsNotNone(tex.split_tag(equation)[1], (name, equation))
        self.assertGreater(len(tagged()), 130)

    def test_plain_text_is_what_the_headers_write(self):
        """Compared where chapter and header use the same names. Elsewhere the header has the names of the code."""
        headers = {}
        for files in PARTS:
            header = (ROOT / files.header).read_text(encoding="utf-8")
            headers |= {tag: " ".join(text.split()) for text, tag in HEADER.findall(header)}
        chapters = {tag: tex.plain(equation) for tag, equation in tagged().items()}
        equal = [tag for tag in chapters if chapters[tag] == headers.get(tag)]
        self.assertGreaterEqual(len(equal), 70, sorted(set(chapters) - set(equal)))


THIN = '<mspace width="0.1667em"/>'
INFIX = '<mo form="infix">'


def wrapping(*groups: str) -> str:
    """A group that breaks is given as an element."""
    rows = (group if group.startswith("<mrow class") else f"<mrow>{group}</mrow>" for group in groups)
    return f'<mrow class="wrap">{"".join(rows)}</mrow>'


class MathMl(unittest.TestCase):
    def assert_line(self, equation: str, expected: str):
        self.assertEqual(tex.mathml(equation, False), f"<math>{expected}</math>")

    def assert_display(self, equation: str, *groups: str):
        self.assertEqual(tex.mathml(equation, True), f'<math display="block">{wrapping(*groups)}</math>')

    def test_a_name_is_one_identifier(self):
        self.assert_line(r"\mathrm{d\_weight}_i", "<msub><mi>d_weight</mi><mi>i</mi></msub>")
        self.assert_line(r"\mathrm{d}x", '<mi mathvariant="normal">d</mi><mi>x</mi>')
        self.assert_line(r"\Phi\phi", '<mi mathvariant="normal">Φ</mi><mi>ϕ</mi>')

    def test_primes_are_superscripts(self):
        prime = "<mo>′</mo>"
        self.assert_line("c'", f"<msup><mi>c</mi>{prime}</msup>")
        self.assert_line("o''_i", "<msubsup><mi>o</mi><mi>i</mi><mo>′′</mo></msubsup>")
        self.assert_line("x'^2", f"<msup><mi>x</mi><mrow>{prime}<mn>2</mn></mrow></msup>")
        index = f"<mrow><mi>b</mi><msup><mi>c</mi>{prime}</msup></mrow>"
        self.assert_line("k_{bc'}", f"<msub><mi>k</mi>{index}</msub>")

    def test_signs(self):
        self.assert_line("-1", '<mo form="prefix">−</mo><mn>1</mn>')
        self.assert_line("a - -1", '<mi>a</mi><mo>−</mo><mo form="prefix">−</mo><mn>1</mn>')
        self.assert_line("= -1", '<mo>=</mo><mo form="prefix">−</mo><mn>1</mn>')
        self.assert_line(r"a \mathrel{+}= b", "<mi>a</mi><mo>+=</mo><mi>b</mi>")
        tight = '<mo lspace="0" rspace="0">'
        exponent = f"<mrow><mi>a</mi>{tight}−</mo><mi>b</mi>{tight}/</mo><mn>2</mn></mrow>"
        self.assert_line("e^{a-b/2}", f"<msup><mi>e</mi>{exponent}</msup>")
        self.assert_line(r"a \leftarrow b", "<mi>a</mi><mo>←</mo><mi>b</mi>")

    def test_sums_have_limits_in_display_alone(self):
        body = '<mo lspace="0">∑</mo><mi>d</mi>'
        self.assert_line(r"\sum_d x", f"<msub>{body}</msub><mi>x</mi>")
        self.assert_display(r"\sum_d x", f"<munder>{body}</munder><mi>x</mi>")
        self.assert_display(r"\frac{\sum_d}{2}", f"<mfrac><msub>{body}</msub><mn>2</mn></mfrac>")
        first = '<mrow><mi>r</mi><mo lspace="0" rspace="0">=</mo><mn>0</mn></mrow>'
        self.assert_display(
            r"\sum_{r=0}^n x", f'<munderover><mo lspace="0">∑</mo>{first}<mi>n</mi></munderover><mi>x</mi>'
        )

    def test_functions_are_applied(self):
        self.assert_line(r"x \log y", f'<mi>x</mi>{THIN}<mi>log</mi><mo rspace="0.1667em">&#x2061;</mo><mi>y</mi>')
        opened, closed = ('<mrow><mo stretchy="false">(</mo>', '<mo stretchy="false">)</mo></mrow>')
        self.assert_line(r"\max(a, b)", f"<mi>max</mi><mo>&#x2061;</mo>{opened}<mi>a</mi><mo>,</mo><mi>b</mi>{closed}")
        largest = "<munder><mi>max</mi><mi>c</mi></munder>"
        self.assert_display(r"\max_c a", f'{largest}<mo rspace="0.1667em">&#x2061;</mo><mi>a</mi>')

    def test_fractions_and_roots(self):
        self.assert_line(r"\frac1D", "<mfrac><mn>1</mn><mi>D</mi></mfrac>")
        self.assert_display(r"\tfrac12 x", f'<mfrac displaystyle="false"><mn>1</mn><mn>2</mn></mfrac>{THIN}<mi>x</mi>')
        self.assert_line(r"\sqrt K", "<msqrt><mi>K</mi></msqrt>")

    def test_a_bracket_keeps_the_size_that_was_asked(self):
        sized = '<mo minsize="1.8em" maxsize="1.8em">'
        fence = f"<mrow>{sized}(</mo><mi>a</mi>{sized})</mo></mrow>"
        self.assert_line(r"\Big(a\Big)^2", f"<msup>{fence}<mn>2</mn></msup>")
        self.assert_line(r"\left|a\right|", "<mrow><mo>|</mo><mi>a</mi><mo>|</mo></mrow>")
        bar = '<mo stretchy="false">‖</mo>'
        self.assert_line(r"\|a\|_2", f"<msub><mrow>{bar}<mi>a</mi>{bar}</mrow><mn>2</mn></msub>")

    def test_marks(self):
        hat = '<mover accent="true"><mi>x</mi><mo stretchy="false">^</mo></mover>'
        self.assert_line(r"\hat x_d", f"<msub>{hat}<mi>d</mi></msub>")
        self.assert_line(r"\overline u", '<mover accent="true"><mi>u</mi><mo>‾</mo></mover>')

    def test_cases(self):
        row = "<mtr><mtd><mi>{}</mi></mtd><mtd>{}</mtd></mtr>"
        rows = row.format("a", "<mtext>for\u00a0</mtext><mi>b</mi>") + row.format("c", "<mi>else</mi>")
        self.assert_line(
            r"\begin{cases} a & \text{for }b \\ c & \mathrm{else} \end{cases}",
            f"<mrow><mo>{{</mo><mtable>{rows}</mtable></mrow>",
        )

    def test_a_term_with_a_condition(self):
        opened, closed = '<mrow><mo stretchy="false">{</mo>', '<mo stretchy="false">}</mo></mrow>'
        term = f'{opened}<mo form="prefix">+</mo>{THIN}<mi>r</mi>{closed}'
        self.assert_line(r"\{+\,r\}_{\text{given}}", f"<msub>{term}<mtext>given</mtext></msub>")

    def test_an_equation_can_break(self):
        given = '<mrow><mo stretchy="false">{</mo><mo form="prefix">+</mo><mi>f</mi><mo stretchy="false">}</mo></mrow>'
        self.assertEqual(
            tex.mathml(r"a = b - c, \quad d < 1\,\{+ f\}_{g}", True),
            '<math display="block">'
            + wrapping("<mi>a</mi>", "<mo>=</mo><mi>b</mi>", f'{INFIX}−</mo><mi>c</mi><mo>,</mo><mspace width="1em"/>')
            + wrapping("<mi>d</mi>", f"<mo>&lt;</mo><mn>1</mn>{THIN}", f"<msub>{given}<mi>g</mi></msub>")
            + "</math>",
        )

    def test_a_long_product_can_break_between_its_factors(self):
        name = "a_name_of_thirty_letters_or_so"
        written, bracket = name.replace("_", r"\_"), f'<mrow><mo stretchy="false">(</mo><mi>b</mi><mo>−</mo><mi>c</mi><mo stretchy="false">)</mo></mrow>'
        product = rf"\mathrm{{{written}}}\,(b - c) \sum_d e"
        inner = wrapping(f"<mo>=</mo><mi>{name}</mi>{THIN}", bracket, "<munder><mo lspace=\"0\">∑</mo><mi>d</mi></munder><mi>e</mi>")
        self.assert_display(f"a = {product}", "<mi>a</mi>", inner)
        self.assert_display(rf"a = \sum_d \mathrm{{{written}}}", "<mi>a</mi>", f'<mo>=</mo><munder><mo lspace="0">∑</mo><mi>d</mi></munder><mi>{name}</mi>')
        for short in (r"b\,(b - c) \sum_d e", r"b, c"):
            self.assertEqual(tex.mathml(short, True).count("<mrow class"), 1)

    def test_a_long_list_can_break_behind_its_commas(self):
        name = "a_name_of_thirty_letters_or_so"
        written = rf"\mathrm{{{name}}}".replace("_", r"\_")
        inner = wrapping(f"<mi>{name}</mi><mo>,</mo>", f"<mi>{name}</mi>")
        self.assert_display(f"{written}, {written} = c", inner, "<mo>=</mo><mi>c</mi>")

    def test_brackets_never_break(self):
        for inside in (r"\mathrm{ab} - " * 20 + "c", r"\mathrm{ab}, " * 20 + "c", r"\mathrm{ab}\,\sum_d " * 20 + "c"):
            for left, right in (("(", ")"), (r"\left(", r"\right)"), (r"\big(", r"\big)")):
                self.assertEqual(tex.mathml(f"a = f{left}{inside}{right}", True).count("<mrow class"), 1, inside)


class Tags(unittest.TestCase):
    def test_split(self):
        self.assertEqual(tex.split_tag(r"a = b \qquad \text{(global\_norm.12)}"), ("a = b", "global_norm.12"))
        self.assertEqual(tex.split_tag("a = b . \\qquad\n  \\text{(gelu.1)}\n"), ("a = b .", "gelu.1"))
        self.assertEqual(tex.split_tag(r"a \qquad \text{(gelu.1)}."), ("a.", "gelu.1"))
        self.assertEqual(tex.split_tag(r"a \text{ as in (gelu.1)}"), (r"a \text{ as in (gelu.1)}", None))


class Plain(unittest.TestCase):
    def test_forms(self):
        for equation, expected in {
            r"\mathrm{mean}_{bc} = \frac1D \sum_d \mathrm{in}_{bcd}": "mean_bc = 1/D sum_d in_bcd",
            r"\Big(\frac1D \sum_d (x_d - m)^2 + \epsilon\Big)^{-1/2}": "(1/D sum_d (x_d - m)^2 + epsilon)^(-1/2)",
            r"\mathrm{d\_bias}_o \mathrel{+}= s \sum_{bc} \mathrm{d\_out}_{bco}": "d_bias_o += s sum_bc d_out_bco",
            r"x_c \cdot y_{c-1}": "x_c . y_{c-1}",
            r"\sum_{d:\;\mathrm{base}(d) = b} h_{b,\,c-(J-1)+j}": "sum_{d: base(d) = b} h_{b, c-(J-1)+j}",
            r"e^{\mathrm{max}_{c-1} - \mathrm{max}_c} / \sqrt K": "e^(max_{c-1} - max_c) / sqrt(K)",
            r"e^{\mathrm{logit}_{c'}}\,x_{c'}": "e^logit_c' x_c'",
            r"\max_{c'}\,(-a_{c'}) \le \max(b, c)": "max_c' (-a_c') <= max(b, c)",
            r"\mathrm{layernorm}_\mathrm{mid}'(r_{bcd})": "layernorm_mid'(r_bcd)",
            r"\overline{u}_{bc} - \hat x_{bcd}\,\overline{(u \hat x)}_{bc}": "mean(u)_bc - x_hat_bcd mean(u x_hat)_bc",
            r"\{+\,\mathrm{d\_residual}_{bcd}\}_{\text{given}}": "{+ d_residual_bcd | given}",
            r"a\,\{+\,\mathrm{d\_out}\}_{\text{skip normed}}": "a {+ d_out | skip normed}",
            r"\begin{cases} 1 & \text{where } w \ge \lceil p\,2^{32} \rceil \\ 0 & a < b \end{cases}":
                "1 where w >= ceil(p 2^32), 0 if a < b",
            r"w_i \leftarrow w_i - \eta \left( \frac{\hat m_i}{\sqrt{\hat s_i} + \varepsilon} \right)":
                "w_i <- w_i - eta (m_hat_i / (sqrt(s_hat_i) + epsilon))",
            r"u_s^\top \Delta\, v_s": "u_s^T Delta v_s",
        }.items():
            self.assertEqual(tex.plain(equation), expected)


class Characters(unittest.TestCase):
    def test_a_single_letter_is_italic(self):
        found = tex.characters(tex.mathml(r"\sqrt{h_{bc'}} \log \mathrm{in}\,\Phi(\epsilon)", False))
        self.assertEqual(found, set("√ℎ𝑏𝑐′loginΦ()𝜖"))


class Refused(unittest.TestCase):
    def test_message_names_the_cause_and_the_place(self):
        for equation, message, offset in (
            (r"a + \fraq12", r"unknown command \fraq", 4),
            (r"\operatorname{softmax}", r"unknown command \operatorname", 0),
            (r"\bigl(a\bigr)", r"unknown command \bigl", 0),
            ("50 % x", "a lone %", 3),
            ("x é", "unknown character é", 2),
            ("x_{bc", "{ is not closed", 2),
            ("x_b}", "} closes nothing", 3),
            ("(a + b", "( is not closed", 0),
            ("a + b)", ") closes nothing", 5),
            ("[0, 1)", "[ is not closed before )", 0),
            (r"\left(a", r"\left( is not closed", 0),
            (r"\left(a)", r"\left( is not closed before )", 0),
            (r"a\right)", r"\right) closes nothing", 1),
            (r"\big(a\Big)", r"\big( is not closed before \Big)", 0),
            ("x_a_b", "double subscript", 3),
            ("x^a^b", "double superscript", 3),
            ("x^a'", "double superscript", 3),
            ("_a", "nothing stands before _", 0),
            ("a + ^2", "nothing stands before ^", 4),
            ("10^12", "^12 wants braces", 3),
            (r"\frac{}{2}", r"the argument of \frac is empty", 5),
            (r"\frac1", r"the argument of \frac is missing", 6),
            ("x_", "the argument of _ is missing", 2),
            ("a & b", "& outside an environment", 2),
            (r"a \\ b", r"\\ outside an environment", 2),
            (r"\begin{cases} a & b", r"\begin{cases} is not closed", 0),
            (r"\begin{cases} a \end{cases}", "a line of cases is", 16),
            (r"\begin{cases} a & \end{cases}", "a line of cases is", 18),
            (r"\begin{aligned} a", r"\begin wants {cases}", 6),
            (r"a \end{cases}", r"\end without \begin", 2),
            (r"\mathrm{a+b}", r"\mathrm wants a name", 7),
            (r"\text{$a$}", r"\text wants text", 5),
            (r"a \mathrel{\le} b", r"\mathrel wants {+}", 10),
            (r"d\_ab", r"unknown command \_", 1),
            (" ", "an equation without anything in it", 0),
        ):
            for write in (tex.parse, tex.plain, lambda equation: tex.mathml(equation, True)):
                with self.subTest(equation=equation), self.assertRaises(tex.TexError) as caught:
                    write(equation)
                self.assertIn(message, str(caught.exception))
                self.assertEqual(caught.exception.offset, offset, equation)


if __name__ == "__main__":
    unittest.main()
