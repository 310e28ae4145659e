"""A classifier that runs on onnxruntime, with its features and classifier weights laid open."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import onnx
import torch
from torch import Tensor, nn

from preceptor.core import ModelOutput, PreceptorError
from preceptor.zoo.card import HeadRecord
from preceptor.zoo.onnx_graph import FLOATS, OnnxHead, find_onnx_head, parse_onnx, with_features

PRECISIONS = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64}


class OnnxNetwork(nn.Module):
    """An ONNX model; features are what goes into its last linear layer. It has no feature maps."""

    runs_on = "onnx"
    weight: Tensor
    bias: Tensor | None

    def __init__(self, data: bytes) -> None:
        super().__init__()
        model = parse_onnx(data, "the ONNX model")
        head = find_onnx_head(model)
        self.head: OnnxHead = head
        self.record = HeadRecord(path=head.features, reduction="mean" if head.convolution else "none")
        self.register_buffer("weight", torch.from_numpy(head.weight.copy()), persistent=False)
        bias = None if head.bias is None else torch.from_numpy(head.bias.copy())
        self.register_buffer("bias", bias, persistent=False)
        self._model = with_features(model, head).SerializeToString()
        self._session: Any = None
        self.output_name = model.graph.output[0].name
        self.parameter_count = sum(
            int(np.prod(t.dims)) for t in model.graph.initializer if t.data_type in FLOATS
        )

    @classmethod
    def discover(cls, data: bytes, inputs: Tensor) -> Self:
        """Read the graph, run it, and check that the layer found gives the logits."""
        network = cls(data)
        output = network(inputs)
        again = output.features @ network.weight.T + (0 if network.bias is None else network.bias)
        scale = output.logits.abs().max()
        half = network.head.element_type == onnx.TensorProto.FLOAT16  # which rounds to a thousandth
        tolerance = (5e-3 if half else 1e-4) * scale + 1e-6
        if again.shape != output.logits.shape or not (again - output.logits).abs().max() <= tolerance:
            raise PreceptorError(
                "features @ W.T + b of the ONNX graph's last linear layer is not its output; "
                "it cannot be a teacher"
            )
        return network

    def forward(self, inputs: Tensor, maps: bool = True) -> ModelOutput:
        """Features and logits of normalised `inputs`; a fixed batch size is fed in portions."""
        session = self._start(inputs.device)
        entry = session.get_inputs()[0]
        fixed = entry.shape[0] if entry.shape and isinstance(entry.shape[0], int) else None
        if entry.type not in PRECISIONS:
            raise PreceptorError(
                f"the ONNX graph takes {entry.type}; a teacher takes float16, float32 or float64, so export it so"
            )
        rows = inputs.detach().cpu().float().numpy().astype(PRECISIONS[entry.type], copy=False)
        portion = fixed or max(len(rows), 1)
        results = [
            self._run(session, entry.name, rows[i : i + portion], fixed) for i in range(0, len(rows), portion)
        ]
        logits, features = (
            torch.from_numpy(np.concatenate(part)).float().to(inputs.device)
            for part in zip(*results, strict=True)
        )
        if self.head.convolution:
            features = features.flatten(2).mean(2)
        return ModelOutput(maps=(), features=features.flatten(1), logits=logits)

    def _run(
        self, session: Any, name: str, rows: np.ndarray, fixed: int | None
    ) -> tuple[np.ndarray, np.ndarray]:
        count = len(rows)
        if fixed is not None and count < fixed:
            rows = np.concatenate([rows, np.zeros((fixed - count, *rows.shape[1:]), rows.dtype)])
        try:
            logits, features = session.run([self.output_name, self.head.features], {name: rows})
        except Exception as error:  # onnxruntime's exceptions share no public class
            line = (str(error).strip().splitlines() or ["no reason given"])[0][:200]
            raise PreceptorError(f"onnxruntime cannot run the model on {rows.shape}: {line}") from error
        if logits.ndim != 2 or len(logits) != len(rows):
            raise PreceptorError(
                f"the ONNX model returns {logits.shape}; a classifier returns (batch, classes)"
            )
        return logits[:count], features[:count]

    def _start(self, device: torch.device) -> Any:
        """The session, made at first use: it can be neither copied nor sent to another process."""
        if self._session is None:
            import onnxruntime

            wanted = ["CUDAExecutionProvider"] if device.type == "cuda" else []
            providers = [
                p for p in (*wanted, "CPUExecutionProvider") if p in onnxruntime.get_available_providers()
            ]
            settings = onnxruntime.SessionOptions()
            settings.log_severity_level = 3
            settings.intra_op_num_threads = torch.get_num_threads()
            try:
                self._session = onnxruntime.InferenceSession(self._model, settings, providers=providers)
            except Exception as error:  # onnxruntime's exceptions share no public class
                line = (str(error).strip().splitlines() or ["no reason given"])[0][:200]
                raise PreceptorError(f"onnxruntime cannot load the model: {line}") from error
        return self._session

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_session": None}
