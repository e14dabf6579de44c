"""Queens, frequencies, guests at tables, colours of a map, and the rounds of a league."""

from __future__ import annotations

from itertools import combinations
from random import Random
from typing import Any

from ortools.sat.python import cp_model

from bench.policies.experts.problem import (
    Handwritten,
    Instance,
    Plan,
    Problem,
    Spellings,
    cells_of,
    chosen,
    names,
    one_of_each,
    plan_of,
    require,
    scaled,
    text,
    totals,
    whole,
)


def _queens(draw: Random, size: float) -> Instance:
    count = scaled(20, size, 6)
    every = range(1, count + 1)
    cost = {(column, line): draw.randint(0, 99) for column in every for line in every}

    def expert() -> Handwritten:
        model = cp_model.CpModel()
        at = dict(zip(every, one_of_each(model, count, count), strict=True))
        for line in range(count):
            model.add_exactly_one(at[column][line] for column in every)
        for diagonal in range(-count, 2 * count):
            for slope in (1, -1):
                lines = [(column, diagonal + slope * column) for column in every]
                model.add_at_most_one(at[column][line] for column, line in lines if 0 <= line < count)
        total = sum(cost[column, line] * at[column][line - 1] for column in every for line in every)

        def plan(solver: cp_model.CpSolver) -> Plan:
            lines = {(column,): (chosen(solver, at[column]) or 0) + 1 for column in every}
            return {("queen", "variable__line"): lines}

        return Handwritten(model, [total], plan)

    def check(plan: Plan) -> list[int]:
        line = {column: whole(plan["queen", "variable__line"][column,]) for column in every}
        for one, other in combinations(every, 2):
            require(abs(line[one] - line[other]) not in {0, other - one}, f"{one} and {other} do not attack")
        return [sum(cost[column, line[column]] for column in every)]

    return Instance(
        {
            "line": [{"number": line} for line in every],
            "queen": [{"col": column} for column in every],
            "cost": [{"col": column, "line": line, "cost": each} for (column, line), each in cost.items()],
        },
        expert,
        check,
    )


QUEENS = Problem(
    "queens",
    "20 queens that do not attack each other, on the cheapest squares",
    """
CREATE TABLE line (number INTEGER PRIMARY KEY);
CREATE TABLE queen (col INTEGER PRIMARY KEY, variable__line INTEGER NOT NULL REFERENCES line (number));
CREATE TABLE cost (col INTEGER NOT NULL, line INTEGER NOT NULL, cost INTEGER NOT NULL, PRIMARY KEY (col, line));
""",
    Spellings(
        """
CREATE CONSTRAINT no_attack AS
SELECT a.col, b.col
FROM queen AS a JOIN queen AS b ON a.col < b.col
CHECK a.variable__line <> b.variable__line AND abs(a.variable__line - b.variable__line) <> b.col - a.col;

CREATE CONSTRAINT cheap AS
SELECT queen.col FROM queen JOIN cost ON cost.col = queen.col AND cost.line = queen.variable__line
MINIMIZE sum(cost.cost);
""",
        """
CREATE CONSTRAINT no_attack AS
SELECT a.col FROM queen AS a
CHECK NOT EXISTS (
    SELECT 1 FROM queen AS b
    WHERE b.col > a.col
    AND (b.variable__line = a.variable__line OR abs(b.variable__line - a.variable__line) = b.col - a.col)
);

CREATE CONSTRAINT cheap AS
SELECT queen.col FROM queen
MINIMIZE sum((SELECT cost.cost FROM cost WHERE cost.col = queen.col AND cost.line = queen.variable__line));
""",
        """
CREATE VIEW board AS
SELECT col, variable__line AS line, variable__line + col AS rising, variable__line - col AS falling FROM queen;

CREATE CONSTRAINT no_attack AS
SELECT count(*) FROM board
CHECK count(DISTINCT line) = count(*) AND count(DISTINCT rising) = count(*) AND count(DISTINCT falling) = count(*);

CREATE VIEW paid AS
SELECT board.col, cost.cost FROM board JOIN cost ON cost.col = board.col AND cost.line = board.line;

CREATE CONSTRAINT cheap AS
SELECT col FROM paid
MINIMIZE sum(cost);
""",
    ),
    _queens,
)


_CHANNELS = 60


def _frequencies(draw: Random, size: float) -> Instance:
    antennas = names("a", scaled(40, size, 6))
    pairs = list(combinations(range(len(antennas)), 2))
    gaps = {pair: draw.choice((1, 1, 2, 2, 3, 5)) for pair in sorted(draw.sample(pairs, len(pairs) // 5))}

    def expert() -> Handwritten:
        model = cp_model.CpModel()
        at = [model.new_int_var(1, _CHANNELS, "") for _ in antennas]
        for (one, other), gap in gaps.items():
            above = model.new_bool_var("")
            model.add(at[one] - at[other] >= gap).only_enforce_if(above)
            model.add(at[other] - at[one] >= gap).only_enforce_if(~above)
        highest = model.new_int_var(1, _CHANNELS, "")
        model.add_max_equality(highest, at)

        def plan(solver: cp_model.CpSolver) -> Plan:
            return {("antenna", "variable__channel"): cells_of(solver, antennas, at)}

        return Handwritten(model, [highest], plan)

    def check(plan: Plan) -> list[int]:
        at = [whole(plan["antenna", "variable__channel"][antenna,]) for antenna in antennas]
        require(all(1 <= channel <= _CHANNELS for channel in at), "every antenna has a channel")
        for (one, other), gap in gaps.items():
            require(abs(at[one] - at[other]) >= gap, f"{antennas[one]} and {antennas[other]} are apart")
        return [max(at)]

    return Instance(
        {
            "antenna": [{"name": antenna} for antenna in antennas],
            "near": [
                {"one": antennas[one], "other": antennas[other], "gap": gap}
                for (one, other), gap in gaps.items()
            ],
        },
        expert,
        check,
    )


FREQUENCIES = Problem(
    "frequencies",
    "40 antennas, 156 pairs whose channels must be apart: the highest channel as low as can be",
    f"""
CREATE TABLE antenna (
    name TEXT PRIMARY KEY,
    variable__channel INTEGER NOT NULL CHECK (variable__channel BETWEEN 1 AND {_CHANNELS})
);
CREATE TABLE near (one TEXT NOT NULL, other TEXT NOT NULL, gap INTEGER NOT NULL, PRIMARY KEY (one, other));
""",
    Spellings(
        """
CREATE CONSTRAINT apart AS
SELECT near.one, near.other
FROM near JOIN antenna AS a ON a.name = near.one JOIN antenna AS b ON b.name = near.other
CHECK abs(a.variable__channel - b.variable__channel) >= near.gap;

CREATE CONSTRAINT highest AS
SELECT name FROM antenna
MINIMIZE max(variable__channel);
""",
        """
CREATE CONSTRAINT apart AS
SELECT a.name FROM antenna AS a
CHECK NOT EXISTS (
    SELECT 1 FROM near JOIN antenna AS b ON b.name = near.other
    WHERE near.one = a.name
    AND b.variable__channel BETWEEN a.variable__channel - near.gap + 1 AND a.variable__channel + near.gap - 1
);

CREATE CONSTRAINT highest AS
SELECT 1 AS everything
MINIMIZE (SELECT max(variable__channel) FROM antenna);
""",
        """
CREATE VIEW distance AS
SELECT near.one, near.other, near.gap,
    greatest(a.variable__channel, b.variable__channel) - least(a.variable__channel, b.variable__channel) AS apart
FROM near JOIN antenna AS a ON a.name = near.one JOIN antenna AS b ON b.name = near.other;

CREATE CONSTRAINT apart AS
SELECT one, other FROM distance
CHECK apart >= gap;

CREATE VIEW used AS
SELECT max(variable__channel) AS channel FROM antenna;

CREATE CONSTRAINT highest AS
SELECT channel FROM used
MINIMIZE sum(channel);
""",
    ),
    _frequencies,
)


def _seating(draw: Random, size: float) -> Instance:
    guests = names("g", scaled(36, size, 8))
    tables = names("t", 6 if size > 0.5 else 2)
    seats = len(guests) // len(tables)
    pairs = list(combinations(range(len(guests)), 2))
    feels = {pair: draw.choice((1, 2, 3, -1, -2, -3)) for pair in draw.sample(pairs, 3 * len(guests))}
    feels.update(dict.fromkeys(draw.sample(sorted(feels), len(guests) // 4), 9))  # they must not meet

    def expert() -> Handwritten:
        model = cp_model.CpModel()
        at = one_of_each(model, len(guests), len(tables))
        for table in range(len(tables)):
            model.add(sum(row[table] for row in at) == seats)
        total: Any = 0
        for (one, other), dislike in feels.items():
            if dislike == 9:
                for table in range(len(tables)):
                    model.add_at_most_one(at[one][table], at[other][table])
                continue
            together = model.new_bool_var("")
            for table in range(len(tables)):
                model.add_bool_or(~together, ~at[one][table], at[other][table])
                model.add_bool_or(together, ~at[one][table], ~at[other][table])
            total += dislike * together

        return Handwritten(model, [total], plan_of("guest", "variable__table", guests, tables, at))

    def check(plan: Plan) -> list[int]:
        table = [text(plan["guest", "variable__table"][guest,]) for guest in guests]
        held = totals((each, 1) for each in table)
        require(all(held[each] == seats for each in tables), "every table is full")
        met = [dislike for (one, other), dislike in feels.items() if table[one] == table[other]]
        require(9 not in met, "enemies do not meet")
        return [sum(met)]

    return Instance(
        {
            "place": [{"name": table, "seats": seats} for table in tables],
            "guest": [{"name": guest} for guest in guests],
            "feels": [
                {"one": guests[one], "other": guests[other], "dislike": dislike}
                for (one, other), dislike in feels.items()
            ],
        },
        expert,
        check,
    )


SEATING = Problem(
    "seating",
    "36 guests at 6 tables, 108 pairs that like or dislike each other: as little dislike as can be at one table",
    """
CREATE TABLE place (name TEXT PRIMARY KEY, seats INTEGER NOT NULL);
CREATE TABLE guest (name TEXT PRIMARY KEY, variable__table TEXT NOT NULL REFERENCES place (name));
CREATE TABLE feels (one TEXT NOT NULL, other TEXT NOT NULL, dislike INTEGER NOT NULL, PRIMARY KEY (one, other));
""",
    Spellings(
        """
CREATE CONSTRAINT full_tables AS
SELECT place.name FROM guest JOIN place ON guest.variable__table = place.name
GROUP BY place.name, place.seats
CHECK count(*) = place.seats;

CREATE CONSTRAINT enemies AS
SELECT feels.one FROM feels JOIN guest AS a ON a.name = feels.one JOIN guest AS b ON b.name = feels.other
WHERE feels.dislike = 9
CHECK a.variable__table <> b.variable__table;

CREATE CONSTRAINT dislike AS
SELECT feels.one
FROM feels JOIN guest AS a ON a.name = feels.one
JOIN guest AS b ON b.name = feels.other AND b.variable__table = a.variable__table
WHERE feels.dislike < 9
MINIMIZE sum(feels.dislike);
""",
        """
CREATE CONSTRAINT full_tables AS
SELECT place.name FROM place
CHECK (SELECT count(*) FROM guest WHERE guest.variable__table = place.name) = place.seats;

CREATE CONSTRAINT enemies AS
SELECT a.name FROM guest AS a
CHECK a.variable__table NOT IN (
    SELECT b.variable__table FROM feels JOIN guest AS b ON b.name = feels.other
    WHERE feels.one = a.name AND feels.dislike = 9
);

CREATE CONSTRAINT dislike AS
SELECT feels.one FROM feels
WHERE feels.dislike < 9
AND (SELECT variable__table FROM guest WHERE name = feels.one)
    = (SELECT variable__table FROM guest WHERE name = feels.other)
MINIMIZE sum(feels.dislike);
""",
        """
CREATE VIEW company AS
SELECT place.name, place.seats, count(*) AS guests
FROM guest JOIN place ON guest.variable__table = place.name
GROUP BY place.name, place.seats;

CREATE CONSTRAINT full_tables AS
SELECT name FROM company
CHECK guests = seats;

CREATE VIEW meeting AS
SELECT feels.one, feels.other, feels.dislike, a.variable__table = b.variable__table AS together
FROM feels JOIN guest AS a ON a.name = feels.one JOIN guest AS b ON b.name = feels.other;

CREATE CONSTRAINT enemies AS
SELECT one FROM meeting WHERE dislike = 9
CHECK NOT together;

CREATE CONSTRAINT dislike AS
SELECT one FROM meeting WHERE dislike < 9
MINIMIZE sum(CASE WHEN together THEN dislike ELSE 0 END);
""",
    ),
    _seating,
)


def _colours(draw: Random, size: float) -> Instance:
    regions = names("r", scaled(60, size, 8))
    colours = range(1, 13)
    pairs = list(combinations(range(len(regions)), 2))
    borders = sorted(draw.sample(pairs, len(pairs) * 3 // 10))

    def expert() -> Handwritten:
        model = cp_model.CpModel()
        has = one_of_each(model, len(regions), len(colours))
        used = [model.new_bool_var("") for _ in colours]
        for colour, is_used in enumerate(used):
            for row in has:
                model.add_implication(row[colour], is_used)
            for one, other in borders:
                model.add_bool_or(~has[one][colour], ~has[other][colour])

        def plan(solver: cp_model.CpSolver) -> Plan:
            found = {
                (region,): (chosen(solver, row) or 0) + 1 for region, row in zip(regions, has, strict=True)
            }
            return {("region", "variable__colour"): found}

        return Handwritten(model, [sum(used)], plan)

    def check(plan: Plan) -> list[int]:
        colour = [whole(plan["region", "variable__colour"][region,]) for region in regions]
        for one, other in borders:
            require(colour[one] != colour[other], f"{regions[one]} and {regions[other]} differ")
        return [len(set(colour))]

    return Instance(
        {
            "region": [{"name": region} for region in regions],
            "border": [{"one": regions[one], "other": regions[other]} for one, other in borders],
        },
        expert,
        check,
    )


COLOURS = Problem(
    "colours",
    "60 regions and 531 borders: as few colours as can be",
    """
CREATE TABLE region (
    name TEXT PRIMARY KEY,
    variable__colour INTEGER NOT NULL CHECK (variable__colour BETWEEN 1 AND 12)
);
CREATE TABLE border (one TEXT NOT NULL, other TEXT NOT NULL, PRIMARY KEY (one, other));
""",
    Spellings(
        """
CREATE CONSTRAINT different AS
SELECT border.one FROM border JOIN region AS a ON a.name = border.one JOIN region AS b ON b.name = border.other
CHECK a.variable__colour <> b.variable__colour;

CREATE CONSTRAINT few AS
SELECT name FROM region
MINIMIZE count(DISTINCT variable__colour);
""",
        """
CREATE CONSTRAINT different AS
SELECT a.name FROM region AS a
CHECK NOT EXISTS (
    SELECT 1 FROM border JOIN region AS b ON b.name = border.other
    WHERE border.one = a.name AND b.variable__colour = a.variable__colour
);

CREATE CONSTRAINT few AS
SELECT 1 AS everything
MINIMIZE (SELECT count(DISTINCT variable__colour) FROM region);
""",
        """
CREATE VIEW painted AS
SELECT border.one, border.other, a.variable__colour AS here, b.variable__colour AS there
FROM border JOIN region AS a ON a.name = border.one JOIN region AS b ON b.name = border.other;

CREATE CONSTRAINT different AS
SELECT one FROM painted WHERE here = there
CHECK FALSE;

CREATE VIEW pot AS
SELECT variable__colour AS colour, count(*) AS regions FROM region GROUP BY variable__colour;

CREATE CONSTRAINT few AS
SELECT colour FROM pot WHERE regions > 0
MINIMIZE count(*);
""",
    ),
    _colours,
)


def _league(draw: Random, size: float) -> Instance:
    teams = names("t", 10 if size > 0.5 else 4)
    rounds = range(1, len(teams))
    games = list(combinations(teams, 2))
    cost = {(*game, number): draw.randint(0, 30) for game in games for number in rounds}

    def expert() -> Handwritten:
        model = cp_model.CpModel()
        at = dict(zip(games, one_of_each(model, len(games), len(rounds)), strict=True))
        for team in teams:
            for number in range(len(rounds)):
                model.add_exactly_one(row[number] for game, row in at.items() if team in game)
        total = sum(cost[*game, number] * at[game][number - 1] for game in games for number in rounds)

        def plan(solver: cp_model.CpSolver) -> Plan:
            found = {game: (chosen(solver, row) or 0) + 1 for game, row in at.items()}
            return {("game", "variable__round"): found}

        return Handwritten(model, [total], plan)

    def check(plan: Plan) -> list[int]:
        at = {game: whole(plan["game", "variable__round"][game]) for game in games}
        played = totals(((team, number), 1) for game, number in at.items() for team in game)
        require(max(played.values()) == 1, "a team plays once a round")
        return [sum(cost[*game, number] for game, number in at.items())]

    return Instance(
        {
            "team": [{"name": team} for team in teams],
            "round": [{"number": number} for number in rounds],
            "game": [{"home": home, "away": away} for home, away in games],
            "cost": [
                {"home": home, "away": away, "round": number, "cost": each}
                for (home, away, number), each in cost.items()
            ],
        },
        expert,
        check,
    )


LEAGUE = Problem(
    "league",
    "10 teams, everybody against everybody in 9 rounds, at the dates that cost least",
    """
CREATE TABLE team (name TEXT PRIMARY KEY);
CREATE TABLE round (number INTEGER PRIMARY KEY);
CREATE TABLE game (
    home TEXT NOT NULL, away TEXT NOT NULL,
    variable__round INTEGER NOT NULL REFERENCES round (number),
    PRIMARY KEY (home, away)
);
CREATE TABLE cost (
    home TEXT NOT NULL, away TEXT NOT NULL, round INTEGER NOT NULL, cost INTEGER NOT NULL,
    PRIMARY KEY (home, away, round)
);
""",
    Spellings(
        """
CREATE CONSTRAINT once_a_round AS
SELECT a.home, a.away, b.home, b.away
FROM game AS a JOIN game AS b
ON (a.home, a.away) < (b.home, b.away) AND (b.home IN (a.home, a.away) OR b.away IN (a.home, a.away))
CHECK a.variable__round <> b.variable__round;

CREATE CONSTRAINT cheap AS
SELECT game.home, game.away
FROM game JOIN cost ON cost.home = game.home AND cost.away = game.away AND cost.round = game.variable__round
MINIMIZE sum(cost.cost);
""",
        """
CREATE CONSTRAINT once_a_round AS
SELECT team.name, round.number FROM team CROSS JOIN round
CHECK (
    SELECT count(*) FROM game
    WHERE (game.home = team.name OR game.away = team.name) AND game.variable__round = round.number
) = 1;

CREATE CONSTRAINT cheap AS
SELECT home, away FROM game
MINIMIZE sum((
    SELECT cost FROM cost WHERE cost.home = game.home AND cost.away = game.away AND cost.round = game.variable__round
));
""",
        """
CREATE VIEW plays AS
SELECT home AS team, variable__round AS round FROM game
UNION ALL
SELECT away AS team, variable__round AS round FROM game;

CREATE CONSTRAINT once_a_round AS
SELECT team FROM plays
GROUP BY team
CHECK all_different(round);

CREATE VIEW paid AS
SELECT game.home, game.away, cost.cost
FROM game JOIN cost ON cost.home = game.home AND cost.away = game.away
WHERE cost.round = game.variable__round;

CREATE CONSTRAINT cheap AS
SELECT home, away FROM paid
MINIMIZE sum(cost);
""",
    ),
    _league,
)
