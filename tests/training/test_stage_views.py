"""Where the views of a stage come from: a recipe, or the dataset's augmentation."""

import numpy as np
import pytest
from tiny_runs import tiny

from cloc_jax.data import augment, view_recipes
from cloc_jax.training import assembly
from cloc_jax.training.assembly import build_dataset
from cloc_jax.training.encoder import augmentation


@pytest.mark.parametrize("name, recipe", [("supcon", "rnc"), ("simclr", "simclr")])
def test_views_are_those_of_the_recipe_or_of_the_dataset(name, recipe):
    config = tiny(method__name=name)
    dataset = build_dataset(config)
    image = dataset.splits["train"].whole(3)

    def drawn():
        stage = assembly.check(config, dataset).method.stages[0]
        views = assembly.draws(config, dataset, stage)
        return [view(3, np.random.default_rng(5)) for view in views]

    rng = np.random.default_rng(5)
    wanted = view_recipes.apply(view_recipes.RECIPES[recipe], image, (24, 24), rng)
    np.testing.assert_array_equal(drawn(), [wanted, wanted])
    config.method[name].augment = "default"
    wanted = augment.apply(augmentation(config), image, np.random.default_rng(5))
    np.testing.assert_array_equal(drawn(), [wanted, wanted])
    assert (wanted != image).any()


def test_a_recipe_that_is_none_and_a_frozen_encoder():
    config = tiny(method__name="rnc", method__rnc__augment="crops")
    dataset = build_dataset(config)
    with pytest.raises(
        ValueError, match="method.rnc.augment is 'crops'; use one of default"
    ):
        assembly.check(config, dataset)
    config.method.rnc.augment = "default"
    config.encoder.frozen = True
    with pytest.raises(ValueError, match="pretrain of rnc trains the encoder, which"):
        assembly.check(config, dataset)


@pytest.mark.parametrize(
    "size, local_size, wanted",
    [
        ((72, 120), (31, 51), "pretrain of dino has images of 31x51, but resnet18 needs"
         " at least 32x32; set method.dino.local_size"),
        ((24, 120), (32, 51), "images of 24x120, .* set data.size"),
    ],
)  # fmt: skip
def test_views_that_are_too_small_for_the_encoder(size, local_size, wanted):
    config = tiny(
        encoder__name="resnet18",
        encoder__weights="random",
        data__size=size,
        method__name="dino",
        method__dino__local_size=local_size,
    )
    dataset = build_dataset(config)
    with pytest.raises(ValueError, match=wanted):
        assembly.check(config, dataset)
    config.data.size, config.method.dino.local_size = (32, 120), (32, 51)
    assembly.check(config, dataset)
