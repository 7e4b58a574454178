"""Workbooks are read as other programs wrote them: numbers of the first sheet, without headings."""

from __future__ import annotations

import base64
import io
import struct
import sys
import zipfile
import zlib

import pytest

from lvd.data.download import DownloadError, WebFile, parse_workbook

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

_SPREADSHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"
SHEET = f"""<?xml version="1.0" encoding="UTF-8"?>
<worksheet xmlns="{_SPREADSHEET}"><sheetData>
<row r="1"><c r="A1" t="s"><v>0</v></c><c r="B1" t="inlineStr"><is><t>age</t></is></c></row>
<row r="2"><c r="A2" s="1"><v>0.98</v></c><c r="B2" t="n"><v>28</v></c><c r="C2"/></row>
<row r="3"><c r="A3"><v>1E-3</v></c><c r="B3"><f>1+1</f><v>2</v></c><c r="C3" t="b"><v>1</v></c></row>
<row r="4"><c r="A4" s="2"/></row>
</sheetData></worksheet>"""
PARTS = {
    "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}">'
    f'<Relationship Id="r0" Type="{_RELATIONS}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
    "xl/workbook.xml": f'<workbook xmlns="{_SPREADSHEET}" xmlns:r="{_RELATIONS}"><sheets>'
    '<sheet name="one" sheetId="1" r:id="r1"/><sheet name="two" sheetId="2" r:id="r2"/></sheets></workbook>',
    "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{_PACKAGE}">'
    f'<Relationship Id="r1" Type="{_RELATIONS}/worksheet" Target="worksheets/sheet1.xml"/>'
    f'<Relationship Id="r2" Type="{_RELATIONS}/worksheet" Target="worksheets/sheet2.xml"/></Relationships>',
    "xl/sharedStrings.xml": f'<sst xmlns="{_SPREADSHEET}"><si><t>cement</t></si></sst>',
    "xl/worksheets/sheet1.xml": SHEET,
    "xl/worksheets/sheet2.xml": SHEET.replace("0.98", "99"),
}


@pytest.fixture(scope="module")
def xls() -> bytes:
    """The workbook with a result of its formula."""
    data = zlib.decompress(base64.b85decode(XLS))
    assert data.count(WITHOUT_RESULT) == 1
    return data.replace(WITHOUT_RESULT, struct.pack("<d", 9.5))


def test_xls_has_the_numbers_of_the_first_sheet(xls: bytes) -> None:
    assert parse_workbook(xls, ("size", "age", "price")) == {
        "size": ["540.0", "-7.0", "1073741824.0", "0.0", "4.0"],
        "age": ["28.0", "1.25", "0.1", "-0.75", "5.0"],
        "price": ["79.98611076", "61.887365759999994", "-1e+300", "33.0", "9.5"],
    }


def test_xlsx_has_the_numbers_of_the_first_sheet() -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, text in PARTS.items():
            archive.writestr(name, text)
    assert parse_workbook(data.getvalue(), ("cement", "age")) == {
        "cement": ["0.98", "0.001"],
        "age": ["28.0", "2.0"],
    }


@pytest.mark.parametrize("spoil", [lambda data: b"PK" + data, lambda data: data[:3000], lambda data: b""])
def test_other_files_are_refused(xls: bytes, spoil) -> None:
    with pytest.raises(ValueError, match="not an Excel workbook: "):
        parse_workbook(spoil(xls), ("size", "age", "price"))


def test_without_the_reader_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "python_calamine", None)
    monkeypatch.setattr("lvd.data.download.read_url", lambda *_, **__: b"bytes")
    with pytest.raises(DownloadError, match=r"an Excel workbook.*pip install 'lvd\[datasets\]'"):
        WebFile("https://example.org/a.xls", parse_workbook).fetch(("size",))
