"""How do others reach a collection over HTTP? Search, groups and decisions for programs, and a page for people.

Serving needs `facetric[serve]`.
"""

from facetric.service.server import check_access, create_app, serve
from facetric.service.service import Limits

__all__ = ["Limits", "check_access", "create_app", "serve"]
