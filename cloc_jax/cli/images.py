"""Jobs on images before training, and on the weights of encoders."""

from cloc_jax.cli.command_line import Folder, Settings
from cloc_jax.runtime import environment


def check(settings: Settings, run: Folder = "") -> int:
    """Look for what is wrong with the images and their grades.

    Args:
      run: folder of the results; runs/<config>-check by default
    """
    environment.set_up_libraries(is_joint=False)
    from cloc_jax.cli import check

    return check.check(settings.config, settings.run_folder(run, "check"))


def show(settings: Settings, run: Folder = "") -> int:
    """Draw what would be trained on.

    Args:
      run: folder of the pictures; runs/<config>-show by default
    """
    environment.set_up_libraries(is_joint=False)
    from cloc_jax.cli import show

    show.show(settings.config, settings.run_folder(run, "show"))
    return 0


def prepare(settings: Settings) -> int:
    """Only prepare the images."""
    environment.set_up_libraries(is_joint=False)
    from cloc_jax.data.datasets import LAYOUTS
    from cloc_jax.runtime.console import console, print_dataset
    from cloc_jax.training import assembly

    config, name = settings.config, settings.config.data.name
    dataset = assembly.load(config)
    # What training would refuse is refused here, where it is quick to mend.
    assembly.check_critical(config, dataset.ranks)
    assembly.prepare(dataset, config).splits["train"][0]  # also a crop too large
    if name not in LAYOUTS:
        console.print(f"{name} needs no preparation: its images are drawn as needed")
        return 0
    print_dataset(dataset)
    console.print(f"records  {dataset.details['prepared']}", soft_wrap=True)
    return 0


def weights(
    from_: str = "",
    to: str = "",
    architecture: str | None = None,
    preprocessing: str | None = None,
) -> int:
    """Convert ImageNet weights to safetensors.

    Args:
      from_: a file, a folder, an archive or a name on the hub
      to: the safetensors file to write
      architecture: they must be of, such as resnet50
      preprocessing: how pixels were scaled, if the file does not tell
    """
    environment.set_up_libraries(is_joint=False)
    from cloc_jax.encoders.weights import filling

    filling.convert(from_, to, architecture=architecture, preprocessing=preprocessing)
    return 0
