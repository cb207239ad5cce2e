"""Encoders against PyTorch: transformers' ResNets, and networks written out here."""

import re

import jax.numpy as jnp
import numpy as np
import pytest
from references import (
    FLOAT32,
    check_features,
    check_step,
    encoder,
    error,
    features,
    images,
    random_like,
)

from cloc_jax.encoders import layers
from cloc_jax.encoders.weights import filling

torch = pytest.importorskip("torch", reason="the optional extra `parity`")
nn = torch.nn

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class VGG(nn.Module):
    """VGG16 under torchvision's names."""

    def __init__(self, batch_norm, hidden):
        super().__init__()
        modules, inputs = [], 3
        for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
            for _ in range(count):
                modules.append(nn.Conv2d(inputs, width, 3, padding=1))
                modules += [nn.BatchNorm2d(width)] if batch_norm else []
                modules.append(nn.ReLU())
                inputs = width
            modules.append(nn.MaxPool2d(2, 2))
        self.features = nn.Sequential(*modules)
        self.pool = nn.AdaptiveAvgPool2d(7)
        self.classifier = nn.Sequential(
            *[nn.Linear(512 * 49, hidden), nn.ReLU(), nn.Identity()],
            *[nn.Linear(hidden, hidden), nn.ReLU(), nn.Identity()],
        )

    def forward(self, x):
        return self.classifier(self.pool(self.features(x)).flatten(1))


class DenseLayer(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, 128, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(128)
        self.conv2 = nn.Conv2d(128, 32, 3, padding=1, bias=False)

    def forward(self, x):
        y = self.conv1(self.norm1(x).relu())
        return torch.cat([x, self.conv2(self.norm2(y).relu())], 1)


class DenseNet(nn.Module):
    """DenseNet-121 under torchvision's names."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential()
        self.features.add_module("conv0", nn.Conv2d(3, 64, 7, 2, 3, bias=False))
        self.features.add_module("norm0", nn.BatchNorm2d(64))
        self.features.add_module("relu0", nn.ReLU())
        self.features.add_module("pool0", nn.MaxPool2d(3, 2, 1))
        width = 64
        for index, count in enumerate((6, 12, 24, 16), 1):
            block = nn.Sequential()
            for layer in range(count):
                block.add_module(f"denselayer{layer + 1}", DenseLayer(width))
                width += 32
            self.features.add_module(f"denseblock{index}", block)
            if index < 4:
                transition = nn.Sequential()
                transition.add_module("norm", nn.BatchNorm2d(width))
                transition.add_module("relu", nn.ReLU())
                width //= 2
                transition.add_module(
                    "conv", nn.Conv2d(2 * width, width, 1, bias=False)
                )
                transition.add_module("pool", nn.AvgPool2d(2, 2))
                self.features.add_module(f"transition{index}", transition)
        self.features.add_module("norm5", nn.BatchNorm2d(width))

    def forward(self, x):
        return self.features(x).relu().mean((2, 3))


class ResNet(nn.Module):
    """transformers' ResNet."""

    def __init__(self, architecture, stride="3x3"):
        super().__init__()
        transformers = pytest.importorskip("transformers")
        widths = np.array([64, 128, 256, 512])
        is_deep = architecture == "resnet50"
        self.net = transformers.ResNetModel(
            transformers.ResNetConfig(
                embedding_size=64,
                hidden_sizes=(widths * (4 if is_deep else 1)).tolist(),
                depths=[2, 2, 2, 2] if architecture == "resnet18" else [3, 4, 6, 3],
                layer_type="bottleneck" if is_deep else "basic",
                downsample_in_bottleneck=stride == "1x1",
            )
        )

    def forward(self, x):
        return self.net(x).pooler_output.flatten(1)


def torchvision_name(name):
    """torchvision's name of a tensor of one of the networks above."""
    name = name.removeprefix("net.")
    for pattern, new in (
        (r"embedder\.embedder\.convolution", "conv1"),
        (r"embedder\.embedder\.normalization", "bn1"),
        (r"\.shortcut\.convolution", ".downsample.0"),
        (r"\.shortcut\.normalization", ".downsample.1"),
    ):
        name = re.sub(pattern, new, name)
    name = re.sub(
        r"\.layer\.(\d)\.(\w)\w+",
        lambda m: f".{'conv' if m[2] == 'c' else 'bn'}{int(m[1]) + 1}",
        name,
    )
    return re.sub(
        r"encoder\.stages\.(\d)\.layers\.(\d)",
        lambda m: f"layer{int(m[1]) + 1}.{m[2]}",
        name,
    )


def randomised(net):
    """Random weights in a torch module, and the same for ours."""
    rng = np.random.default_rng(1)
    tensors = {}
    for name, tensor in net.state_dict().items():
        name = torchvision_name(name)
        if tensor.is_floating_point():
            tensor.copy_(torch.from_numpy(random_like(name, tensor.shape, rng)))
        tensors[name] = tensor.numpy().copy()
    return filling.canonical(tensors, {})


def statistics_after(net, run):
    """What run() gives, and the statistics after it as ours are: with biased variance.

    torch normalises with the biased variance, but keeps the unbiased one.
    """
    before = {k: v.clone() for k, v in net.named_buffers()}
    counts = {}
    for name, module in net.named_modules():
        if isinstance(module, nn.BatchNorm2d):
            module.register_forward_hook(
                lambda _, x, y, name=f"{name}.running_var": counts.update(
                    {name: y.numel() // y.shape[1]}
                )
            )
    output = run()
    statistics = {}
    for name, after in net.named_buffers():
        if name in counts and net.training:
            n, kept = counts[name], 0.9 * before[name]
            after = kept + (after - kept) * (n - 1) / n
        statistics[torchvision_name(name)] = after.numpy()
    return output.detach().numpy(), statistics


def feature_reference(net):
    """What `check_features` compares with."""

    def reference(pictures, train):
        net.train(train)
        return statistics_after(net, lambda: net(as_input(pictures)))

    return reference


def step_reference(net):
    """What `check_step` compares with."""

    def reference(x, direction, train):
        net.double().train(train).zero_grad()

        def run():
            output = net(torch.from_numpy(x.transpose(0, 3, 1, 2)))
            (output * torch.from_numpy(direction)).sum().backward()
            return output

        output, tensors = statistics_after(net, run)
        for name, parameter in net.named_parameters():
            tensors[torchvision_name(name)] = parameter.grad.numpy()
        return output, tensors

    return reference


def as_input(pictures):
    """uint8 images as torchvision's networks want them."""
    x = (pictures / 255 - np.array([[[MEAN]]])) / np.array([[[STD]]])
    return torch.from_numpy(x.transpose(0, 3, 1, 2).astype(np.float32))


NETWORKS = {
    "resnet18": (lambda: ResNet("resnet18"), {}),
    "resnet34": (lambda: ResNet("resnet34"), {}),
    "resnet50": (lambda: ResNet("resnet50"), {}),
    "vgg16": (lambda: VGG(False, 64), {"hidden": 64}),
    "vgg16_bn": (lambda: VGG(True, 64), {"hidden": 64}),
    "densenet121": (DenseNet, {}),
}


@pytest.mark.parametrize(
    "name, train",
    [
        pytest.param("resnet18", True, marks=pytest.mark.slow),  # as in a step
        pytest.param("resnet34", False, marks=pytest.mark.slow),
        pytest.param("resnet50", False, marks=pytest.mark.slow),
        pytest.param("vgg16", False, marks=pytest.mark.slow),
        ("vgg16_bn", True),
        pytest.param("densenet121", False, marks=pytest.mark.slow),
    ],
)
def test_features(name, train):
    make, options = NETWORKS[name]
    net = make()
    weights = randomised(net)
    assert weights.metadata["architecture"] == name
    reference = feature_reference(net)
    check_features(weights, images((75, 58)), reference, train=train, **options)


@pytest.mark.parametrize(
    "name, train",
    [
        pytest.param("resnet18", True, marks=pytest.mark.slow),
        pytest.param("resnet50", True, marks=pytest.mark.slow),
        pytest.param("resnet18", False, marks=pytest.mark.slow),
        pytest.param("vgg16_bn", True, marks=pytest.mark.slow),
        pytest.param("densenet121", True, marks=pytest.mark.slow),
    ],
)
def test_a_step(name, train):
    make, options = NETWORKS[name]
    net = make()
    weights = randomised(net)
    check_step(weights, (75, 58), step_reference(net), train=train, **options)


@pytest.mark.slow
def test_trained_weights(shared):
    """The stride, the pixels and the epsilon of weights that Keras trained."""
    path = shared / "weights" / "resnet50_imagenet_keras_v1.safetensors"
    weights = filling.load(str(path))
    net = ResNet("resnet50", stride="1x1").eval()
    for name, tensor in net.state_dict().items():
        if tensor.is_floating_point():
            values = weights.tensors[torchvision_name(name)].astype(np.float32)
            tensor.copy_(torch.from_numpy(values))
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eps = 1.001e-5
    pictures = images((120, 200), batch=3)
    caffe = pictures[..., ::-1] - np.array([[[[103.939, 116.779, 123.68]]]])
    x = torch.from_numpy(caffe.transpose(0, 3, 1, 2).astype(np.float32))
    expected = net(x).detach().numpy()

    assert error(features(encoder(weights), pictures)[0], expected) < FLOAT32


@pytest.mark.parametrize("size", [(1, 1), (3, 5), (7, 7), (8, 13), (16, 20)])
def test_adaptive_average_pool(size):
    x = np.random.default_rng(0).normal(size=(2, *size, 3)).astype(np.float32)
    ours = layers.adaptive_average_pool(jnp.asarray(x), 7)
    theirs = nn.AdaptiveAvgPool2d(7)(torch.from_numpy(x.transpose(0, 3, 1, 2)))
    np.testing.assert_allclose(ours, theirs.permute(0, 2, 3, 1), rtol=1e-5, atol=1e-6)
