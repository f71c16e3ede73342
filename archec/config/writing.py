"""Writing a configuration file: every setting with its help and its default."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from archec.config.whole import Config

__all__ = ["as_yaml"]


def as_yaml(overrides: Mapping[str, object] | None = None) -> str:
    """A documented ``config.yaml`` with every setting at its default, or at ``overrides[name]``."""
    lines = [
        "# archec configuration. Every setting is here, with its default; a line may be left out.",
        "# Relative paths are relative to the folder of this file. Sizes: 500kB, 20MB, 2GiB.",
        "# Durations: 90s, 15m, 2h30m, 7d. Secrets do not belong here: use the environment.",
    ]
    lines += _yaml_lines(Config, "", dict(overrides or {}))
    return "\n".join(lines) + "\n"


def _yaml_lines(cls: type[Any], prefix: str, overrides: dict[str, object]) -> list[str]:
    import yaml

    lines: list[str] = []
    indent = "  " if prefix else ""
    for f in dataclasses.fields(cls):
        if "group" in f.metadata:
            lines += ["", f"# {f.metadata['help']}", f"{f.name}:"]
            lines += _yaml_lines(f.metadata["group"], f"{f.name}.", overrides)[1:]
        elif f.metadata:
            value = overrides.get(prefix + f.name, f.metadata["shown"])
            shown = yaml.safe_dump(value, default_flow_style=True, width=1000).removesuffix("...\n").strip()
            lines += ["", f"{indent}# {f.metadata['help']}", f"{indent}{f.name}: {shown}"]
    return lines
