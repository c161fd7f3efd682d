"""Class names of the COCO data set (https://cocodataset.org), in its own order."""

from __future__ import annotations

#: The 80 classes of detection, as YOLO models number them.
COCO_80: tuple[str, ...] = tuple(
    "person,bicycle,car,motorcycle,airplane,bus,train,truck,boat,traffic light,fire hydrant,stop sign,parking meter,"
    "bench,bird,cat,dog,horse,sheep,cow,elephant,bear,zebra,giraffe,backpack,umbrella,handbag,tie,suitcase,frisbee,"
    "skis,snowboard,sports ball,kite,baseball bat,baseball glove,skateboard,surfboard,tennis racket,bottle,wine glass,"
    "cup,fork,knife,spoon,bowl,banana,apple,sandwich,orange,broccoli,carrot,hot dog,pizza,donut,cake,chair,couch,"
    "potted plant,bed,dining table,toilet,tv,laptop,mouse,remote,keyboard,cell phone,microwave,oven,toaster,sink,"
    "refrigerator,book,clock,vase,scissors,teddy bear,hair drier,toothbrush".split(",")
)

#: Category ids from 1 to 90 that no class of the 80 has.
_GAPS = frozenset({12, 26, 29, 30, 45, 66, 68, 69, 71, 83})


def _with_gaps() -> tuple[str, ...]:
    names = iter(COCO_80)
    return ("background", *(f"unused {i}" if i in _GAPS else next(names) for i in range(1, 91)))


#: The same classes at COCO's category ids, 0 to 90, as DETR models number them.
COCO_91: tuple[str, ...] = _with_gaps()

#: Lists that a card may name instead of writing them out.
NAME_LISTS: dict[str, tuple[str, ...]] = {"coco": COCO_80, "coco91": COCO_91}
