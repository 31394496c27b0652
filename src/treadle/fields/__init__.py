"""Fields: what is declared of a value. `help(...)` shows the sentence below each field; `checked` refuses what does not fit.

`Documented` is public; the rest is for borders, where values of strangers come in.
"""

from treadle.fields.borders import NamedOptions as NamedOptions
from treadle.fields.borders import check_fields as check_fields
from treadle.fields.borders import checked as checked
from treadle.fields.borders import checked_but as checked_but
from treadle.fields.borders import explained as explained
from treadle.fields.documented import Documented
from treadle.fields.kinds import kind_of as kind_of

__all__ = ["Documented"]
