"""Workbooks are read as other programs wrote them."""

from __future__ import annotations

import base64
import io
import struct
import zipfile
import zlib

import pytest

from lvd.reproduction.workbooks import xls_numbers, xlsx_numbers

# Written by xlwt 1.3: a heading, five rows in every kind of numeric record, and a second sheet.
XLS = (
    b"c-rk)O-NKx6#nj;dE+Sl%$Q1Q4I*WwZp=k3($Sz?HCQf+2x`<viJ~&uA{V7iMw=pt7KIzZO&hCCKU7eyS_Dc#LJ*7<ZCVLMEp%Sz"
    b"ocG=|>I4pyWW4Wj&pYqj^WA&iz31NdGcz4bOx&xO!!k6(gQS@YUz$x($#pIQpnB6})j9jAm@d{8a{V-sJ{^w>Ughu{@_f%h!(H!l"
    b"lE4Ql$1sS<K)+G7hS)1HL>0%-q`Z`S8pf#<qFmxC7TG0ogUCDL`$S}mSgwd{BHx5Mis^8qcDJ3!N3?3GD<rA#KsfKj(tuLD<UBrq"
    b"O<BG=T4O!YzJIeK<juz<Xy)3Cej^s`OQ3|Na1!6lD&VWLR-aY5_O-Pukp0I}drk)Xb<GQmz&xQi5yvPY-+HWN*m24*h8oy1>Pxfi"
    b"T)<|q3m4*^?in^njh-}gU@+FxW#sWLEvq`PWK|bPuIH2NMv>@2$@l>6+Y7hnUmxgf4<8rHi0tIne!rCigo#mR5V;UedsYaw!l)B@"
    b"L0YX8y+ULO<td$O+DmO^e_VVnN^K4G(<pco-j=3sCw=V8!H1!-kKrApPqobrmrTuuCs0k#pKjvw5l6kMSGR659)+E=vUi5}BFk6o"
    b"5`HaU$8OpWwIVDcPt>4D>xxH5rLHu4teCBqv7b_pO4u>KNMU<uq?GVpR7M6jnH??6)iQ83;eMvQIEe4c;cCL&V#FJ7%twUlS;l2A"
    b"Pbz9)ruCebM;4B}j(w$`TNyut%X>cUN^&dS6%lL{ThNYUHpy{Zl6z)<JwwF0covH+le_g%QtHx|WG_sckb{sHAswD(tr+*Y2ilr{"
    b"VJ%WsrQ~`|Rh2gUJjGV3UZq=-QAMUvb>YH=3l}b2xcDuUyy>MrC*<AECvR@nf1O1tN%uF&e~UvHpks(WOZTCl&M}<LDu2qLE2k~B"
    b"N{;itka3uLkD(Wx5=U>=`Ae_RD*b*|O$_|GC6sOd$!y~M%l-cZUN8|R"
)
WITHOUT_RESULT = struct.pack("<Q", 0xFFFF000000000003)  # what xlwt leaves where a formula's result belongs

SHEET = """<?xml version="1.0" encoding="UTF-8"?>
<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>
<row r="1"><c r="A1" t="s"><v>0</v></c><c r="B1" t="inlineStr"><is><t>age</t></is></c></row>
<row r="2"><c r="A2" s="1"><v>0.98</v></c><c r="B2" t="n"><v>28</v></c><c r="C2"/></row>
<row r="3"><c r="A3"><v>1E-3</v></c><c r="B3"><f>1+1</f><v>2</v></c></row>
<row r="4"><c r="A4" s="2"/></row>
</sheetData></worksheet>"""


@pytest.fixture(scope="module")
def xls() -> bytes:
    return zlib.decompress(base64.b85decode(XLS))


def xlsx(sheet: str) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("xl/worksheets/sheet1.xml", sheet)
        archive.writestr("xl/worksheets/sheet2.xml", sheet.replace("0.98", "99"))
    return data.getvalue()


def test_xls_has_the_numbers_of_the_first_sheet(xls: bytes) -> None:
    assert xls_numbers(xls) == [
        [540.0, 28.0, 79.98611076],
        [-7.0, 1.25, 61.887365759999994],
        [2.0**30, 0.1, -1e300],
        [0.0, -0.75, 33.0],
        [4.0, 5.0],
    ]


def test_xls_takes_the_stored_result_of_a_formula(xls: bytes) -> None:
    assert xls.count(WITHOUT_RESULT) == 1
    assert xls_numbers(xls.replace(WITHOUT_RESULT, struct.pack("<d", 9.5)))[-1] == [4.0, 5.0, 9.5]


def test_xls_refuses_other_files(xls: bytes) -> None:
    with pytest.raises(ValueError, match="not an Excel 97 workbook"):
        xls_numbers(b"PK" + xls)
    with pytest.raises(ValueError, match="no stream Workbook"):
        xls_numbers(xls.replace("Workbook".encode("utf-16-le"), "Document".encode("utf-16-le")))


def test_xlsx_has_the_numbers_of_the_first_sheet() -> None:
    assert xlsx_numbers(xlsx(SHEET)) == [[0.98, 28.0], [0.001, 2.0]]
