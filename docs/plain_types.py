"""Shows the type of a setting in the API pages, without what else its annotation holds."""

from typing import Any

import griffe


class PlainTypes(griffe.Extension):
    """`Annotated[int, Setting(...)]` -> `int`."""

    def on_function_instance(self, *, func: griffe.Function, **_: Any) -> None:
        for parameter in func.parameters:
            parameter.annotation = _plain(parameter.annotation)

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        attr.annotation = _plain(attr.annotation)


def _plain(annotation: Any) -> Any:
    is_setting = isinstance(annotation, griffe.ExprSubscript) and str(annotation.left) == "Annotated"
    return annotation.slice.elements[0] if is_setting else annotation
