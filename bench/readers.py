"""The rival of BenchmarkFormats in pipeline/parse: LlamaIndex's readers over the same files.

Needs llama-index-readers-file and what its readers ask for (pypdf, docx2txt, python-pptx, openpyxl, EbookLib,
html2text, beautifulsoup4, striprtf, pandas). Standard input: a JSON object of file lists by extension.
Prints one: seconds by file, the least of three passes (or of those that 20 seconds allow), null where the reader
failed.
"""

import contextlib, io, json, logging, pathlib, sys, time, warnings

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)
from llama_index.readers import file as readers

READERS = {
    "pdf": readers.PDFReader, "docx": readers.DocxReader, "pptx": readers.PptxReader, "xlsx": readers.PandasExcelReader,
    "html": readers.HTMLTagReader, "epub": readers.EpubReader, "md": readers.MarkdownReader, "csv": readers.PandasCSVReader,
    "rtf": readers.RTFReader, "txt": readers.FlatReader, "xml": readers.XMLReader,
}


def seconds(reader, path):
    start = time.perf_counter()
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            list(reader.load_data(pathlib.Path(path)))
    except Exception:
        return None
    return time.perf_counter() - start


def least(before, now):
    return None if before is None or now is None else min(before, now)


took = {}
for ext, files in json.load(sys.stdin).items():
    if ext in READERS:
        reader = READERS[ext](tag="body") if ext == "html" else READERS[ext]()
        seconds(reader, files[0])  # what it imports at its first use
        begun = time.perf_counter()
        for _ in range(3):
            for path in files:
                took[path] = least(took.get(path, float("inf")), seconds(reader, path))
            if time.perf_counter() - begun > 20:
                break
print(json.dumps(took))
