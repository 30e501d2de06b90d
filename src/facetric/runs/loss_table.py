"""The table [loss]: its own keys, and the options of the loss that it names, which come from the signature of the loss."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, model_validator

from facetric.runs.table import Table, unknown_key

NONE = "none"  # stands for None, which TOML lacks


class LossTable(Table):
    """The loss of a run. Beside the fields below it holds the options of the loss: the arguments of its constructor."""

    model_config = ConfigDict(extra="allow")

    name: str = Field(
        "facility_location",
        description="A loss of facetric.losses.LOSSES, or a dotted name: pytorch_metric_learning.SupConLoss, my_module.MyLoss.",
    )
    options: dict[str, str | int | float | bool] = Field(
        default_factory=dict, description="Options of a loss with a dotted name: its arguments, by their names."
    )
    normalize: bool | None = Field(
        None,
        description="Normalize embeddings to unit length, in training and evaluation; by default as in the paper for the loss.",
    )
    margin_decay: float = Field(0.94, gt=0, le=1, description="γ is multiplied by this at every decay; 1 keeps it constant.")
    margin_decay_every: int | None = Field(
        None, ge=1, description="Steps between decays of γ; by default one pass over the images."
    )
    n_subsets: int = Field(
        0,
        ge=0,
        le=10_000,
        description="The loss is averaged over this many random subsets of the batch (we recommend 16); 0 for the batch itself.",
    )
    subset_size: int | None = Field(None, ge=2, description="Images in a subset; by default half of the batch.")
    nested: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (),
        description="Widths below model.dim, such as [64]: the loss is the mean over the whole embedding and over its first 64 "
        "dimensions, which then serve alone.",
    )

    @classmethod
    def known_keys(cls) -> list[str]:
        """Its own, and the options of every loss."""
        from facetric.losses import LOSSES, loss_options

        return list(dict.fromkeys([*cls.model_fields, *(key for name in LOSSES for key in loss_options(name))]))

    @model_validator(mode="before")
    @classmethod
    def _fill_in_the_options_of_the_loss(cls, values: Any) -> Any:
        """Refuse options that the loss does not take, and fill in its defaults."""
        if not isinstance(values, dict):
            return values
        from facetric.losses import checked_options, loss_options

        values = {key: value for key, value in values.items() if value is not None}
        name = values.get("name", cls.model_fields["name"].default)
        own = {str(key): value for key, value in values.items() if key not in cls.model_fields}
        if isinstance(name, str) and "." in name:
            if own:
                raise ValueError(f"loss {name!r} takes its options in [loss.options]; got loss.{next(iter(own))}: put it there")
            return {"normalize": True, **values}
        if values.get("options"):
            raise ValueError(f"[loss.options] is for losses with a dotted name; {name!r} has its keys in [loss]")
        options = loss_options(name)
        for key in own:
            if key not in cls.known_keys():
                raise ValueError(unknown_key(cls, key, [*cls.model_fields, *options]))
        for key, value in checked_options(name, own).items():
            values[key] = NONE if value is None and options[key].default is not None else value
        return {"normalize": True, **{key: option.default for key, option in options.items()}, **values}

    @model_validator(mode="after")
    def _a_size_is_of_subsets(self) -> Self:
        if self.subset_size is not None and not self.n_subsets:
            raise ValueError(
                f"loss.subset_size ({self.subset_size}) has no effect without subsets: set loss.n_subsets too, or leave it out"
            )
        return self

    @model_validator(mode="after")
    def _the_loss_can_be_made(self) -> Self:
        """Its constructor validates the values. A loss with a dotted name is imported for training only."""
        from facetric.losses import build_loss

        if "." not in self.name:
            build_loss(self.name, self.keywords())
        return self

    def keywords(self) -> dict[str, Any]:
        """The options of the loss."""
        from facetric.losses import checked_options, loss_options

        if "." in self.name:
            return dict(self.options)
        return checked_options(self.name, {key: getattr(self, key) for key in loss_options(self.name)})
