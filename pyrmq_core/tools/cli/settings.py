"""Settings on the command line: `--set NAME=VALUE`, and the names of settings to show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import click


def settings_of(texts: Iterable[str], option: str = "--set") -> dict[str, str]:
    """Returns the settings of the option, whose values may be empty. Raises `BadParameter` for another text."""
    settings = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint=option)
        settings[name.strip()] = value
    return settings


def chosen_settings(settings: Mapping[str, str], names: Iterable[str], where: str) -> dict[str, str]:
    """Returns the named settings, or all if there are no names. Raises `ClickException` for an unknown name."""
    wanted = list(names)
    if missing := [name for name in wanted if name not in settings]:
        raise click.ClickException(f"{where} lists no setting {', '.join(missing)}")
    return {name: settings[name] for name in wanted or sorted(settings)}
