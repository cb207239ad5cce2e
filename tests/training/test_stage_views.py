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
