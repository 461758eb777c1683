"""Which ranking sets are known by name: their files, where they lie in a folder, and whom to ask for them.

Only data: `letor` loads the sets. All of them have licences that forbid passing them on, so none has a download
address.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Size(NamedTuple):
    """How much there is of a part."""

    queries: int
    documents: int


@dataclass(frozen=True)
class Layout:
    """One way in which a set lies in a data folder; `{fold}` stands for the number of the fold."""

    folders: tuple[str, ...]
    files: dict[str, str]  # train, test and perhaps vali
    checksums: dict[str, str] = field(default_factory=dict)  # sha256 of the files as they are known here
    known_as: str = ""  # what files with these checksums are
    notes: tuple[str, ...] = ()
    sizes: dict[str, Size] = field(default_factory=dict)  # as published, of fold 1 where there are folds


@dataclass(frozen=True)
class RankingSet:
    """One set; the first layout of which train and test are found is taken."""

    name: str
    n_features: int
    max_grade: int
    normalise: bool  # whether features are published raw
    layouts: tuple[Layout, ...]
    ask: str
    n_folds: int = 0  # 0 for a set without folds

    @property
    def remedy(self) -> str:
        """How to get it, in one line."""
        layout = self.layouts[0]
        folder = next(folder for folder in layout.folders if folder)
        place = folder.format(fold=f"1..{self.n_folds}")
        return (
            f"its licence forbids passing it on, so there is no download: ask {self.ask}, put "
            f"{', '.join(layout.files.values())} (or .gz, .bz2) into {place}/ of a folder, and set SEAMARK_DATA to "
            "that folder"
        )


SYNTHETIC = "letor-synthetic"
"""The set that is generated, and has no files; see `synthetic`."""

_FOLDER_PARTS = {"train": "train.txt", "vali": "vali.txt", "test": "test.txt"}


def _sizes(train: tuple[int, int], vali: tuple[int, int], test: tuple[int, int]) -> dict[str, Size]:
    return {"train": Size(*train), "vali": Size(*vali), "test": Size(*test)}


_LETOR4 = (
    "Microsoft Research, LETOR 4.0 (www.microsoft.com/en-us/research/project/letor-learning-rank-information-retrieval)"
)
_MSLR = "Microsoft Research (www.microsoft.com/en-us/research/project/mslr)"

_ROWS = (
    RankingSet(
        "mslr10k",
        n_features=136,
        max_grade=4,
        normalise=True,
        layouts=(
            Layout(
                ("MSLR-WEB10K/Fold{fold}", "mslr10k/Fold{fold}"),
                _FOLDER_PARTS,
                sizes=_sizes((6_000, 723_412), (2_000, 235_259), (2_000, 241_521)),
            ),
        ),
        ask=_MSLR,
        n_folds=5,
    ),
    RankingSet(
        "yahoo",
        n_features=700,
        max_grade=4,
        normalise=False,
        layouts=(
            Layout(
                ("", "yahoo", "ltrc_yahoo"),
                {"train": "set1.train.txt", "vali": "set1.valid.txt", "test": "set1.test.txt"},
                sizes=_sizes((19_944, 473_134), (2_994, 71_083), (6_983, 165_660)),
            ),
        ),
        ask="Yahoo Webscope, data set C14 (webscope.sandbox.yahoo.com)",
    ),
    RankingSet(
        "istella-s",
        n_features=220,
        max_grade=4,
        normalise=True,
        layouts=(
            Layout(
                ("sample", "istella-s/sample", "istella-s-letor/sample"),
                _FOLDER_PARTS,
                sizes=_sizes((19_245, 2_043_304), (7_211, 684_076), (6_562, 681_250)),
            ),
        ),
        ask="Istella, Istella-s LETOR (istella.ai/datasets/letor-dataset)",
    ),
    RankingSet(
        "mq2007",
        n_features=46,
        max_grade=2,
        normalise=False,
        layouts=(
            Layout(
                ("MQ2007/Fold{fold}",),
                _FOLDER_PARTS,
                sizes=_sizes((1_017, 42_158), (339, 13_813), (336, 13_652)),
            ),
            Layout(
                ("mq2007_85pct",),
                _FOLDER_PARTS,
                checksums={
                    "train": "e4550cf966334181dc97329fd3b9ff80e3f5d9b89d7f63517b94951aae0145ba",
                    "vali": "356827246f8d44fabcaeba759365ed5209087f2f8a0b23a2b9a47b3931a24049",
                    "test": "8d1dd71cda11dc1f9de2adce7477fafaf03387d56f0b62071d5cdbb405f8d899",
                },
                known_as="rebuilt",
                sizes=_sizes((1_016, 35_529), (338, 11_739), (338, 11_867)),
                notes=(
                    "rebuilt, 85 % of the documents: the official folds were not found, this is MQ2007 put together "
                    "from samples, with all queries and a split of its own",
                ),
            ),
        ),
        ask=_LETOR4,
        n_folds=5,
    ),
    RankingSet(
        "mq2008",
        n_features=46,
        max_grade=2,
        normalise=False,
        layouts=(
            Layout(
                ("MQ2008/Fold{fold}",),
                _FOLDER_PARTS,
                sizes=_sizes((471, 9_630), (157, 2_707), (156, 2_874)),
            ),
        ),
        ask=_LETOR4,
        n_folds=5,
    ),
    RankingSet(
        "mslr-sample",
        n_features=136,
        max_grade=4,
        normalise=True,
        layouts=(
            Layout(
                ("mslr_web10k_fold1_5k",),
                {"train": "msn1.fold1.train.5k.txt", "test": "msn1.fold1.test.5k.txt"},
                checksums={
                    "train": "ed12066501daf6e252aad8da7a54b1c92be94bde86a7065965606713df8a1010",
                    "test": "939d147cfc4d745caa686f2047973807cc7bf45fb9c3a114e568836b68c83083",
                },
                known_as="sample",
                sizes={"train": Size(43, 5_000), "test": Size(43, 5_000)},
                notes=(
                    "genuine, but only the first 5,000 lines of train and of test of MSLR-WEB10K, fold 1; the last "
                    "query of each may be cut off",
                ),
            ),
        ),
        ask=f"{_MSLR} for the whole set, mslr10k, or take this part from the Python package rankeval 0.8.2",
    ),
)

RANKING_CATALOGUE: dict[str, RankingSet] = {row.name: row for row in _ROWS}
