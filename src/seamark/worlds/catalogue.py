"""Which data sets are known by name: their files, checksums, shapes and where they are published.

Only data: `datasets` loads the sets, `fetch` downloads them. A substitute has a name of its own and never
stands in for another set.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

FileStatus = Literal["official", "rebuilt", "unknown checksum", "missing"]

LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass"


@dataclass(frozen=True)
class DataFile:
    """One file of a set; `checksums` maps a known sha256 to what a file with that checksum is."""

    name: str
    folders: tuple[str, ...]
    checksums: dict[str, FileStatus] = field(default_factory=dict)
    size: int | None = None  # bytes of the official file
    address: str | None = None
    rebuilt_note: str = ""  # how the rebuilt file came about

    def status(self, sha256: str) -> FileStatus:
        return self.checksums.get(sha256, "unknown checksum")

    @property
    def official_sha256(self) -> str | None:
        return next((sha for sha, status in self.checksums.items() if status == "official"), None)


@dataclass(frozen=True)
class DataSet:
    """One set; shapes are the published ones. A set without files ships with scikit-learn."""

    name: str
    n_train: int
    n_test: int
    n_features: int
    n_classes: int
    train: DataFile | None = None
    test: DataFile | None = None
    test_share: float = 1.0  # of the test rows, drawn with a fixed seed
    notes: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[DataFile, ...]:
        return tuple(file for file in (self.train, self.test) if file is not None)

    @property
    def has_address(self) -> bool:
        return bool(self.files) and all(file.address is not None for file in self.files)


def _libsvm(
    name: str,
    folder: str,
    checksums: dict[str, FileStatus] | None = None,
    *,
    size: int | None = None,
    rebuilt_note: str = "",
) -> DataFile:
    return DataFile(name, (folder,), checksums or {}, size, f"{LIBSVM}/{name}", rebuilt_note)


_SCALED = "counts divided by the feature's largest count in train, six significant digits"
_ROWS = (
    DataSet(
        "digits",
        n_train=1_437,
        n_test=360,
        n_features=64,
        n_classes=10,
        notes=(
            "ships with scikit-learn; features scaled to [-1, 1] as x / 8 - 1",
            "no published split: the first 80 % of numpy.random.default_rng(0).permutation(1797) are train",
        ),
    ),
    DataSet(
        "usps",
        n_train=7_291,
        n_test=2_007,
        n_features=256,
        n_classes=10,
        train=_libsvm(
            "usps.bz2",
            "usps",
            {
                "3771e9dd6ba685185f89867b6e249233dd74652389f263963b3b741e994b034f": "official",
                "caec874fbcdcd11751576c8579376130f7555dd1ce150bc52e7a9727e4172409": "rebuilt",
            },
            size=6_579_383,
            rebuilt_note="the genuine images, LIBSVM's smoothing redone; equal to about 1e-6",
        ),
        test=_libsvm(
            "usps.t.bz2",
            "usps",
            {"a9c0164e797d60142a50604917f0baa604f326e9a689698763793fa5d12ffc4e": "official"},
            size=1_831_726,
        ),
    ),
    DataSet(
        "news20",
        n_train=15_935,
        n_test=3_993,
        n_features=62_061,
        n_classes=20,
        train=_libsvm(
            "news20.scale.bz2",
            "news20",
            {"6919fc30feed98ab7f6e59bd7947705a3276e645e6bcd748efd9332e66ac78c8": "rebuilt"},
            rebuilt_note=_SCALED,
        ),
        test=_libsvm(
            "news20.t.scale.bz2",
            "news20",
            {"a9f6158e54af6a3de396ad9c1b3a67e9580829536ea1c8cc9d5f6b0dd624128d": "rebuilt"},
            rebuilt_note=_SCALED,
        ),
    ),
    DataSet(
        "news20-counts",
        n_train=15_935,
        n_test=3_993,
        n_features=62_061,
        n_classes=20,
        train=_libsvm(
            "news20.bz2",
            "news20",
            {"8c79851f6f5fdc5540a0d04a5ab728353c42d26b84e73f93bda301c06c15ffe9": "official"},
            size=2_376_572,
        ),
        test=_libsvm(
            "news20.t.bz2",
            "news20",
            {"31cab389a4331722c9ba23f0f3b855080de5a8a8b8357a3b323f896a4cfc4648": "rebuilt"},
            rebuilt_note="the official text, compressed anew",
        ),
    ),
    DataSet(
        "rcv1",
        n_train=15_564,
        n_test=518_571,
        n_features=47_236,
        n_classes=53,
        train=_libsvm(
            "rcv1_train.multiclass.bz2",
            "rcv1",
            {"79691e3f974aa6a08d5e3116c61aff822fbdb2725e99ed27fde4351af51076a8": "official"},
        ),
        test=_libsvm("rcv1_test.multiclass.bz2", "rcv1"),
        test_share=0.05,
    ),
    DataSet(
        "reuters-r52",
        n_train=6_532,
        n_test=2_568,
        n_features=12_189,
        n_classes=52,
        train=DataFile(
            "r52.train.bz2",
            ("reuters_r52",),
            {"5def531c83977e4bae5908ef0499723e47b57ce39b7811408d7f0fdd8a29469f": "rebuilt"},
            rebuilt_note="tf-idf of our own",
        ),
        test=DataFile(
            "r52.test.bz2",
            ("reuters_r52",),
            {"98a4f7072e430707dbb2fb0ff84f1c678bbdf548f25112d712230f90ee30ab2a": "rebuilt"},
            rebuilt_note="tf-idf of our own",
        ),
        notes=("Reuters-21578 R52, a collection other than RCV1 and no part of the paper",),
    ),
    DataSet(
        "rcv1-dev",
        n_train=1_038,
        n_test=519,
        n_features=7_365,
        n_classes=42,
        train=DataFile(
            "rcv1_dev.train.bz2",
            ("rcv1_dev",),
            {"f7e96b7be6e3ebdf2568bb8dc33e60ad2b2088af96a0813caaa0f26f385983e8": "rebuilt"},
            rebuilt_note="tf-idf of our own",
        ),
        test=DataFile(
            "rcv1_dev.test.bz2",
            ("rcv1_dev",),
            {"078db8523e104f5c1fa7c251bd9638e700c7868d209ddbd237b9bbe88a2ba0ab": "rebuilt"},
            rebuilt_note="tf-idf of our own",
        ),
        notes=("genuine RCV1 documents, but only 1,557 of them; the split is not an official one",),
    ),
    DataSet(
        "rcv1-binary",
        n_train=1_000,
        n_test=500,
        n_features=47_117,
        n_classes=2,
        train=DataFile(
            "rcv1_small.train.bz2",
            ("rcv1_binary_1500",),
            {"bb03fe2aa13586d1719a3251086eae5eca8652434ffda06e89d618f202cef594": "rebuilt"},
            rebuilt_note="genuine vectors, converted from Vowpal Wabbit's text",
        ),
        test=DataFile(
            "rcv1_small.test.bz2",
            ("rcv1_binary_1500",),
            {"9d27f9fe3b6e1f311862755001d9c06b55bbf5b2af230f17a0d543143729a7cc": "rebuilt"},
            rebuilt_note="genuine vectors, converted from Vowpal Wabbit's text",
        ),
        notes=("genuine RCV1 vectors, but only 1,500 documents and two classes",),
    ),
)

CATALOGUE: dict[str, DataSet] = {row.name: row for row in _ROWS}
