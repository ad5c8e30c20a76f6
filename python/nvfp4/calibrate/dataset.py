"""Documents of a local data set: JSON lines, Parquet, or a folder that datasets.save_to_disk wrote."""

from pathlib import Path

from .._errors import InvalidValueError, IoError, UnsupportedError


def documents_of_dataset(path, column="text"):
    """Returns the strings of a column that are not empty."""
    if not Path(path).exists():
        raise IoError(f"{path}: no such file or folder", code="NV0102")
    try:
        import datasets
    except ImportError as no:
        raise UnsupportedError("dataset: needs the Python package datasets, which is not installed") from no
    kinds = {".jsonl": "json", ".json": "json", ".parquet": "parquet"}
    try:
        if Path(path).is_dir():
            found = datasets.load_from_disk(str(path))
        elif kind := kinds.get(Path(path).suffix):
            found = datasets.load_dataset(kind, data_files=str(path), split="train")
        else:
            raise InvalidValueError(f"{path}: must be a folder, .jsonl, .json or .parquet")
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as no:
        raise InvalidValueError(f"{path}: {no}") from no
    if isinstance(found, datasets.DatasetDict):
        found = found[next(iter(found))]
    if column not in found.column_names:
        raise InvalidValueError(f"{path}: has no column {column}; has {', '.join(found.column_names)}")
    return [document for document in found[column] if document]
