"""What the translator knows of functions: the type each returns, and which operands it wants small.

What it is not: a list of what may be called; that is the database's.
"""

from __future__ import annotations

from sqlglot import exp

from mgmt.state.schema import SqlType

# Of those whose type does not follow from their operand.
TYPES: dict[type[exp.Expr], SqlType] = {
    **dict.fromkeys((exp.Length, exp.StrPosition, exp.RowNumber, exp.Rank), SqlType.INTEGER),
    **dict.fromkeys((exp.DenseRank, exp.Ntile, exp.RegrCount, exp.Ascii), SqlType.INTEGER),
    **dict.fromkeys((exp.PercentRank, exp.CumeDist), SqlType.REAL),
    **dict.fromkeys((exp.Sqrt, exp.Exp, exp.Ln, exp.Log, exp.Pow), SqlType.REAL),
    **dict.fromkeys((exp.Ceil, exp.Floor, exp.Trunc, exp.Degrees, exp.Radians), SqlType.REAL),
    **dict.fromkeys((exp.Lower, exp.Upper, exp.Initcap, exp.Trim, exp.Concat, exp.ConcatWs), SqlType.TEXT),
    **dict.fromkeys(
        (exp.Replace, exp.Translate, exp.Substring, exp.Left, exp.Right, exp.Repeat), SqlType.TEXT
    ),
    **dict.fromkeys((exp.Pad, exp.Reverse, exp.SplitPart, exp.GroupConcat, exp.Chr), SqlType.TEXT),
    **dict.fromkeys((exp.ToChar, exp.MD5, exp.Format), SqlType.TEXT),
    **dict.fromkeys((exp.StartsWith, exp.Escape), SqlType.BOOLEAN),
}
# Operands of which PostgreSQL takes 32 bits only.
SMALL_OPERANDS: dict[type[exp.Expr], tuple[str, ...]] = {
    exp.Substring: ("start", "length"),
    exp.Left: ("expression",),
    exp.Right: ("expression",),
    exp.Repeat: ("times",),
    exp.Pad: ("expression",),
    exp.SplitPart: ("part_index",),
    exp.Ntile: ("this",),
    exp.Lag: ("offset",),
    exp.Lead: ("offset",),
    exp.NthValue: ("offset",),
    exp.Chr: ("expressions",),
}
# Aggregates, which are numerics of whole numbers there.
REALS = (
    *(exp.Stddev, exp.StddevSamp, exp.StddevPop, exp.Variance, exp.VariancePop, exp.CovarSamp, exp.CovarPop),
    *(exp.Corr, exp.RegrSlope, exp.RegrIntercept, exp.RegrR2),
)
ORDERED_SETS = (exp.PercentileCont, exp.PercentileDisc, exp.Mode)
BITS = (exp.BitwiseAndAgg, exp.BitwiseOrAgg, exp.BitwiseXorAgg)
LIKE_THEIR_OPERAND = (exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue, exp.NthValue, exp.AnyValue)
NEVER_THE_SAME = (exp.Rand, exp.Randn, exp.Uuid)
MANY_ROWS = (exp.GenerateSeries, exp.Unnest, exp.Explode, exp.UDTF)
