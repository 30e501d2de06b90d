"""What the service takes and gives, as its OpenAPI document describes it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

PhotoId = Annotated[str, Field(pattern="^[0-9a-f]{32}$", description="The hash of a photo's content.")]


class Problem(BaseModel):
    """Every error: one line that says what was wrong and what to do."""

    detail: str


class Neighbor(BaseModel):
    """A photo of the index."""

    id: PhotoId
    name: str = Field(description="Its path below the folder that holds all photos of the index.")
    label: str | None
    similarity: float = Field(description="The cosine: 1 for the same direction.")
    distance: float = Field(description="Euclidean, between vectors of length one.")
    is_similar_enough: bool = Field(description="As similar as `at_least` says; without it, true.")


class Found(BaseModel):
    """What is known about an image."""

    unknown: bool = Field(description="No photo is similar enough, or the label is more likely wrong than right.")
    label: str | None = Field(description="What most of the ten nearest photos that are similar enough are labeled.")
    expected_precision: float | None = Field(
        description="How often such a vote is right if half of all images have none of the index's labels, measured on the "
        "index; null where too few photos have labels."
    )
    neighbors: list[Neighbor] = Field(description="The most similar first.")


class Vector(BaseModel):
    """The vector of an image."""

    model: str = Field(description="The fingerprint of the network: vectors can be compared if theirs are equal.")
    vector: list[float]


class Health(BaseModel):
    """The service answers, and its engine runs."""

    status: Literal["ok"] = "ok"


class ClusteredPhoto(BaseModel):
    """A photo in a cluster."""

    id: PhotoId
    ambiguity: float = Field(description="From 0 to 1: near 1, it could as well be elsewhere.")


class Cluster(BaseModel):
    """Photos that belong together; one that is alone is a cluster of one."""

    name: str | None
    precision: float | None = Field(description="Of two photos in it: how often should they belong together? Null for one photo.")
    photos: list[ClusteredPhoto] = Field(description="The medoid first, then the most ambiguous.")


class Question(BaseModel):
    """Do these two belong together?"""

    first: PhotoId
    second: PhotoId


class Expected(BaseModel):
    """What is to be expected of all groups."""

    precision: float = Field(description="Of two photos in one cluster: how often do they belong together?")
    precision_range: tuple[float, float] = Field(description="Where the precision should lie.")
    recall: float = Field(description="Of two photos that belong together: how often are they in one cluster?")


class Clusters(BaseModel):
    """All photos of the index, the largest cluster first."""

    n_photos: int
    n_groups: int = Field(description="Clusters of two photos or more.")
    n_alone: int
    made_by: str
    expected: Expected | None
    clusters: list[Cluster]
    rejected: list[PhotoId]
    questions: list[Question] = Field(description="The most useful first.")


class _Taken(BaseModel, extra="forbid"):
    """What is sent has no other keys."""


class DecidedPhoto(_Taken):
    """A photo that decisions are about: by its content or, where that is gone, by its path."""

    content: PhotoId
    path: Annotated[str, Field(max_length=4096)]


class Decision(_Taken):
    """same: merge or confirm. different: split. name: an empty one takes the name away. reject: it belongs to no group."""

    do: Literal["same", "different", "name", "reject"]
    photos: Annotated[list[Annotated[int, Field(ge=0, strict=True)]], Field(min_length=1, description="Places in `photos`.")]
    name: Annotated[str, Field(max_length=200)] = ""


class Change(_Taken):
    """A decisions file, as `facetric cluster` reads it and its page saves it; with decisions that are taken back, if any."""

    format: Literal["facetric decisions 1"] = "facetric decisions 1"
    photos: list[DecidedPhoto]
    decisions: list[Decision]
    removed: list[Decision] = []


class Saved(BaseModel):
    """The change is on the disk."""

    n_decisions: int
