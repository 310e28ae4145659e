"""A multi-layer perceptron for feature vectors: text embeddings, tabular features."""

from __future__ import annotations

from torch import Tensor, nn

from preceptor.models.network import Network, initialise


class MLP(Network):
    """Two hidden layers with batch norm and ReLU. It has no feature maps; images are flattened."""

    def __init__(self, hidden: int, num_classes: int, inputs: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(),
            nn.Linear(inputs, hidden),
            nn.BatchNorm1d(hidden),
            nn.ReLU(inplace=True),
            nn.Linear(hidden, hidden),
            nn.BatchNorm1d(hidden),
            nn.ReLU(inplace=True),
        )
        self.classifier = nn.Linear(hidden, num_classes)
        initialise(self)
        for layer in self.layers:
            if isinstance(layer, nn.Linear):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")

    def trunk(self, images: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        """No maps; features (B, hidden)."""
        return (), self.layers(images)
