"""GLM-4V, GLM-4.6V, GLM-OCR: native resolution, 2x2 patches merged by a convolution, three-axis rotary positions."""

from __future__ import annotations

from sightline.backbones.base import BACKBONES
from sightline.backbones.images import resized_for
from sightline.backbones.qwen2_vl import NativeResolution


@BACKBONES.register("glm4v")
@BACKBONES.register("glm46v")
@BACKBONES.register("glm_ocr")
class GLM4V(NativeResolution):
    """Every block of the tower attends to the whole image; there is no class token.

    The processor counts an image as a clip of ``temporal_patch_size`` frames, so its own bounds are on twice the pixels
    of the image. Image options are on the pixels themselves.
    """

    @property
    def counted(self) -> int:
        return int(self.image_processor.temporal_patch_size)

    def resized(self, size: tuple[int, int], low: int, high: int) -> tuple[int, int]:
        from transformers.models.glm4v.image_processing_pil_glm4v import smart_resize

        with resized_for(type(self).__name__):
            height, width = smart_resize(
                num_frames=self.counted,
                height=size[1],
                width=size[0],
                temporal_factor=self.counted,
                factor=self.factor,
                min_pixels=low,
                max_pixels=high,
            )
        return width, height
