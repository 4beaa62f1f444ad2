"""Search spaces: axes, constraints, enumeration, counts, samples, neighbours and encodings."""

from kernloom.space.axes import Axis, Row, Rows, Union
from kernloom.space.space import Constraint, Selection, Space

__all__ = ["Axis", "Constraint", "Row", "Rows", "Selection", "Space", "Union"]
