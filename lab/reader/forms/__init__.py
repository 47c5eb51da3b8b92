"""The forms that the reader is trained in, by name."""

from lab.reader.forms.base import Form
from lab.reader.forms.llava_form import LlavaForm
from lab.reader.forms.qwen3_vl_form import Qwen3VLForm

QWEN3_VL = Qwen3VLForm()
FORMS: dict[str, Form] = {form.name: form for form in (QWEN3_VL, LlavaForm())}

__all__ = ["FORMS", "QWEN3_VL", "Form"]
