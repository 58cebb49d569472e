"""Partial responses: the `fields` parameter, such as `items(name,size),nextPageToken` or `items/metadata/*`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from ingestd.localcloud.storage.errors import invalid


@dataclass(slots=True)
class Mask:
    """Which keys to keep; an empty mask keeps everything below."""

    children: dict[str, "Mask"] = field(default_factory=dict)

    def select(self, value: Any) -> Any:
        if not self.children:
            return value
        if isinstance(value, Mapping):
            everything = self.children.get("*")
            kept: dict[str, Any] = {}
            for key, item in value.items():
                mask = self.children.get(key, everything)
                if mask is not None:
                    kept[key] = mask.select(item)
            return kept
        if isinstance(value, list):
            return [self.select(item) for item in value]
        return value

    def merge(self, other: "Mask") -> None:
        for key, mask in other.children.items():
            if key not in self.children:
                self.children[key] = mask
            elif self.children[key].children and mask.children:
                self.children[key].merge(mask)
            else:
                self.children[key] = Mask()


@lru_cache(maxsize=128)
def parse_fields(text: str) -> Mask:
    mask, rest = _parse_list(text, text)
    if rest:
        raise invalid(f"Invalid field selection {text}", parameter="fields")
    return mask


def _parse_list(text: str, whole: str) -> tuple[Mask, str]:
    mask = Mask()
    while True:
        item, text = _parse_path(text, whole)
        mask.merge(item)
        if not text.startswith(","):
            return mask, text
        text = text[1:]


def _parse_path(text: str, whole: str) -> tuple[Mask, str]:
    text = text.lstrip()
    end = next((index for index, char in enumerate(text) if char in ",/()"), len(text))
    name, text = text[:end].strip(), text[end:]
    if not name:
        raise invalid(f"Invalid field selection {whole}", parameter="fields")
    child = Mask()
    if text.startswith("/"):
        child, text = _parse_path(text[1:], whole)
    elif text.startswith("("):
        child, text = _parse_list(text[1:], whole)
        if not text.startswith(")"):
            raise invalid(f"Invalid field selection {whole}", parameter="fields")
        text = text[1:]
    return Mask({name: child}), text
