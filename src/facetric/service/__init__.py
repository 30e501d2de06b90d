"""An index over HTTP: search, groups and decisions for programs, and a page for people. Needs `facetric[serve]`."""

from typing import TYPE_CHECKING

from facetric.lazy import loaded_on_use

if TYPE_CHECKING:
    from facetric.service.app import create_app
    from facetric.service.limits import Limits
    from facetric.service.server import serve
    from facetric.service.service import Service

__all__ = ["Limits", "Service", "create_app", "serve"]

_HOMES = {"Limits": "limits", "Service": "service", "create_app": "app", "serve": "server"}

__getattr__, __dir__ = loaded_on_use(__name__, _HOMES, __all__)
