"""The table [loss]: its own keys, and the options of the loss that it names, which come from the signature of the loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from facetric.runs.table import Table, unknown_key
from facetric.text import did_you_mean

if TYPE_CHECKING:
    from facetric.losses.options import Option

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
        description="The loss is averaged over this many random subsets of the batch; 0 for the batch itself. "
        "16 for facility_location_subsets.",
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
        from facetric.losses import LOSSES
        from facetric.losses.options import loss_options

        return list(dict.fromkeys([*cls.model_fields, *(key for loss in LOSSES.values() for key in loss_options(loss))]))

    @model_validator(mode="before")
    @classmethod
    def _fill_in_the_options_of_the_loss(cls, values: Any) -> Any:
        """Refuse options that the loss does not take, and fill in its defaults."""
        if not isinstance(values, dict):
            return values
        from facetric.losses import LOSSES
        from facetric.losses.external import is_external
        from facetric.losses.options import loss_options

        values = {key: value for key, value in values.items() if value is not None}
        name = values.get("name", cls.model_fields["name"].default)
        own = [key for key in values if key not in cls.model_fields]
        if is_external(str(name)):
            if own:
                raise ValueError(f"loss {name!r} takes its options in [loss.options]; got loss.{own[0]}: put it there")
            return {"normalize": True, **values}
        if values.get("options"):
            raise ValueError(f"[loss.options] is for losses with a dotted name; {name!r} has its keys in [loss]")
        if not isinstance(name, str) or name not in LOSSES:
            raise ValueError(
                f"loss.name must be one of {', '.join(LOSSES)}, or a dotted name such as my_module.MyLoss; got {name!r}"
                f"{did_you_mean(str(name), LOSSES)}"
            )
        options = loss_options(LOSSES[name])
        for key in own:
            if key not in cls.known_keys():
                raise ValueError(unknown_key(cls, str(key), [*cls.model_fields, *options]))
            if key not in options:
                raise ValueError(f"loss {name!r} takes no {key}; it takes {', '.join(options)}: leave loss.{key} out")
            values[key] = _option(name, key, options[key], values[key])
        for key, option in options.items():
            if option.is_required and key not in values:
                raise ValueError(f"loss {name!r} needs {key}: set it, as in --set loss.{key}=…")
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
        """Its constructor validates the values."""
        from facetric.losses import LOSSES

        if self.name in LOSSES:
            try:
                LOSSES[self.name](**self.keywords())
            except ValueError as error:
                raise ValueError(f"loss {self.name!r}: {error}") from None
        return self

    def keywords(self) -> dict[str, Any]:
        """The arguments of the constructor of a loss of ours."""
        from facetric.losses import LOSSES
        from facetric.losses.options import loss_options

        return {
            key: None if option.may_be_none and getattr(self, key) == NONE else getattr(self, key)
            for key, option in loss_options(LOSSES[self.name]).items()
        }


def _option(name: str, key: str, option: Option, value: Any) -> Any:
    """The value of a loss's option, of the type that its signature says."""
    if option.may_be_none and value == NONE:
        return None if option.default is None else NONE
    if not isinstance(value, str | int | float | bool):
        raise ValueError(f"loss.{key} of {name!r} must be text, a number, true or false; got {value!r}: leave it out")
    any_type = ConfigDict(strict=True, allow_inf_nan=False, arbitrary_types_allowed=True)
    try:
        return TypeAdapter(option.annotation, config=any_type).validate_python(value)
    except ValidationError as error:
        rule = error.errors()[0]["msg"]
        usual = NONE if option.default is None else option.default
        default = "" if option.is_required else f": the default is {usual}, as in --set loss.{key}={usual}"
        raise ValueError(f"loss.{key} of {name!r}: {rule}; got {value!r}{default}") from None
