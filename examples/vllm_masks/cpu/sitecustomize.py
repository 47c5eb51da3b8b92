"""For a CPU build of torch beside a torchvision that was built for CUDA: lets the latter be imported.

Python imports this module by itself, in every process, when its folder is on PYTHONPATH. Two operators are declared
before torchvision looks for them. Nothing calls them: they choose among boxes, and images are resized without them.
"""

import sys

kept = []  # operators are forgotten with what declared them


class BeforeTorchvision:
    def find_spec(self, name, path=None, target=None):
        if name == "torchvision":
            sys.meta_path.remove(self)
            import torch

            library = torch.library.Library("torchvision", "DEF")
            for operator in ("nms", "qnms"):
                library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            kept.append(library)
        return None  # whoever finds modules usually finds this one


sys.meta_path.insert(0, BeforeTorchvision())
