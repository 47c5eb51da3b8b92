"""The forms that the reader is trained in, by name."""

from sightline.reader.forms.base import Form
from sightline.reader.forms.llava import Llava
from sightline.reader.forms.qwen3_vl import Qwen3VL

QWEN3_VL = Qwen3VL()
FORMS: dict[str, Form] = {form.name: form for form in (QWEN3_VL, Llava())}

__all__ = ["FORMS", "QWEN3_VL", "Form"]
