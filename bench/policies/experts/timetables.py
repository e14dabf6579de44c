"""Exams in slots, nurses on shifts, courses in rooms and hours."""

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
    chosen,
    names,
    one_of_each,
    require,
    scaled,
    text,
    totals,
    whole,
)

_SLOTS = 30


def _exams(draw: Random, size: float) -> Instance:
    exams = names("e", scaled(120, size, 10))
    pairs = list(combinations(range(len(exams)), 2))
    clashes = sorted(draw.sample(pairs, min(scaled(900, size, 5), len(pairs) // 2)))

    def expert() -> Handwritten:
        model = cp_model.CpModel()
        at = one_of_each(model, len(exams), _SLOTS)
        for one, other in clashes:
            for slot in range(_SLOTS):
                model.add_at_most_one(at[one][slot], at[other][slot])
        late = sum((slot + 1) * row[slot] for row in at for slot in range(_SLOTS))

        def plan(solver: cp_model.CpSolver) -> Plan:
            slots = [chosen(solver, row) for row in at]
            return {
                ("exam", "variable__slot"): {
                    (exam,): None if slot is None else slot + 1
                    for exam, slot in zip(exams, slots, strict=True)
                }
            }

        return Handwritten(model, [late], plan)

    def check(plan: Plan) -> list[int]:
        slot = [whole(plan["exam", "variable__slot"][exam,]) for exam in exams]
        require(all(1 <= one <= _SLOTS for one in slot), "every exam has one of the slots")
        for one, other in clashes:
            require(slot[one] != slot[other], f"{exams[one]} and {exams[other]} are not at once")
        return [sum(slot)]

    return Instance(
        {
            "exam": [{"name": exam} for exam in exams],
            "clash": [{"one": exams[one], "other": exams[other]} for one, other in clashes],
        },
        expert,
        check,
    )


EXAMS = Problem(
    "exams",
    "120 exams in 30 slots, 900 pairs that share students: as early as can be",
    f"""
CREATE TABLE exam (
    name TEXT PRIMARY KEY,
    variable__slot INTEGER NOT NULL CHECK (variable__slot BETWEEN 1 AND {_SLOTS})
);
CREATE TABLE clash (
    one TEXT NOT NULL REFERENCES exam (name),
    other TEXT NOT NULL REFERENCES exam (name),
    PRIMARY KEY (one, other)
);
""",
    Spellings(
        """
CREATE CONSTRAINT not_at_once AS
SELECT clash.one, clash.other
FROM clash JOIN exam AS a ON clash.one = a.name JOIN exam AS b ON clash.other = b.name
CHECK a.variable__slot <> b.variable__slot;

CREATE CONSTRAINT early AS
SELECT name FROM exam
MINIMIZE sum(variable__slot);
""",
        """
CREATE CONSTRAINT not_at_once AS
SELECT a.name FROM exam AS a
CHECK NOT EXISTS (
    SELECT 1 FROM clash JOIN exam AS b ON b.name = clash.other
    WHERE clash.one = a.name AND b.variable__slot = a.variable__slot
);

CREATE CONSTRAINT early AS
SELECT 1 AS everything
MINIMIZE (SELECT sum(variable__slot) FROM exam);
""",
        """
CREATE VIEW pair AS
SELECT clash.one, clash.other, a.variable__slot AS first, b.variable__slot AS second
FROM clash JOIN exam AS a ON clash.one = a.name JOIN exam AS b ON clash.other = b.name;

CREATE CONSTRAINT not_at_once AS
SELECT one, other FROM pair WHERE first = second
CHECK FALSE;

CREATE VIEW total AS
SELECT sum(variable__slot) AS slots FROM exam;

CREATE CONSTRAINT early AS
SELECT slots FROM total
MINIMIZE sum(slots);
""",
    ),
    _exams,
)

_SHIFTS = ("early", "late", "night")


def _rosters(draw: Random, size: float) -> Instance:
    nurses = names("n", scaled(25, size, 10))
    days = 7 if size < 0.5 else 14
    needed = dict(zip(_SHIFTS, (len(nurses) // 4, len(nurses) // 5, len(nurses) // 7), strict=True))
    least, most = days * 5 // 14, days * 9 // 14
    wishes: dict[tuple[str, int, str], int] = {}
    for nurse in nurses:
        for _ in range(days // 3):  # days off, more often at the end of a week
            day = draw.choice(
                [*range(1, days + 1), *(day for day in range(1, days + 1) if day % 7 in {6, 0})]
            )
            wishes |= dict.fromkeys(((nurse, day, shift) for shift in _SHIFTS), draw.randint(2, 9))
        for _ in range(days // 2):
            wishes[nurse, draw.randint(1, days), draw.choice(_SHIFTS)] = draw.randint(1, 5)

    def expert() -> Handwritten:
        model = cp_model.CpModel()
        on = {
            (nurse, day, shift): model.new_bool_var("")
            for nurse in nurses
            for day in range(1, days + 1)
            for shift in _SHIFTS
        }
        for day in range(1, days + 1):
            for shift in _SHIFTS:
                model.add(sum(on[nurse, day, shift] for nurse in nurses) >= needed[shift])
        for nurse in nurses:
            works = [[on[nurse, day, shift] for shift in _SHIFTS] for day in range(1, days + 1)]
            for duty in works:
                model.add_at_most_one(duty)
            for first in range(days - 5):
                model.add(sum(sum(duty) for duty in works[first : first + 6]) <= 5)
            model.add_linear_constraint(sum(sum(duty) for duty in works), least, most)
            for day in range(1, days):
                tomorrow = (on[nurse, day + 1, "early"], on[nurse, day + 1, "late"])
                model.add_at_most_one(on[nurse, day, "night"], *tomorrow)
        unkind = sum(weight * on[wish] for wish, weight in wishes.items())

        def plan(solver: cp_model.CpSolver) -> Plan:
            duties: dict[Any, Any] = {(nurse, day): None for nurse in nurses for day in range(1, days + 1)}
            duties |= {
                (nurse, day): shift
                for (nurse, day, shift), literal in on.items()
                if solver.boolean_value(literal)
            }
            return {("duty", "variable__shift"): duties}

        return Handwritten(model, [unkind], plan)

    def check(plan: Plan) -> list[int]:
        duty = {key: value for key, value in plan["duty", "variable__shift"].items() if value is not None}
        cover = totals(((day, shift), 1) for (_, day), shift in duty.items())
        for day in range(1, days + 1):
            for shift in _SHIFTS:
                require(cover[day, shift] >= needed[shift], f"enough nurses on day {day}, {shift}")
        for nurse in nurses:
            worked = [(nurse, day) in duty for day in range(1, days + 1)]
            require(least <= sum(worked) <= most, f"{nurse} works as often as agreed")
            require(
                all(sum(worked[first : first + 6]) <= 5 for first in range(days - 5)),
                f"{nurse} works at most five days in a row",
            )
            for day in range(1, days):
                tired = duty.get((nurse, day)) == "night"
                require(
                    not tired or duty.get((nurse, day + 1)) in {None, "night"}, f"{nurse} rests after a night"
                )
        return [
            sum(weight for (nurse, day, shift), weight in wishes.items() if duty.get((nurse, day)) == shift)
        ]

    return Instance(
        {
            "shift": [{"name": shift} for shift in _SHIFTS],
            "nurse": [{"name": nurse, "least": least, "most": most} for nurse in nurses],
            "need": [
                {"day": day, "shift": shift, "nurses": needed[shift]}
                for day in range(1, days + 1)
                for shift in _SHIFTS
            ],
            "duty": [{"nurse": nurse, "day": day} for nurse in nurses for day in range(1, days + 1)],
            "wish": [
                {"nurse": nurse, "day": day, "shift": shift, "weight": weight}
                for (nurse, day, shift), weight in wishes.items()
            ],
        },
        expert,
        check,
    )


ROSTERS = Problem(
    "rosters",
    "25 nurses, 14 days, three shifts: cover every shift against as few wishes as can be",
    """
CREATE TABLE shift (name TEXT PRIMARY KEY);
CREATE TABLE nurse (name TEXT PRIMARY KEY, least INTEGER NOT NULL, most INTEGER NOT NULL);
CREATE TABLE need (
    day INTEGER NOT NULL, shift TEXT NOT NULL REFERENCES shift (name), nurses INTEGER NOT NULL,
    PRIMARY KEY (day, shift)
);
CREATE TABLE duty (
    nurse TEXT NOT NULL REFERENCES nurse (name),
    day INTEGER NOT NULL,
    variable__shift TEXT REFERENCES shift (name),  -- NULL: a day off
    PRIMARY KEY (nurse, day)
);
-- What somebody would rather not work.
CREATE TABLE wish (
    nurse TEXT NOT NULL REFERENCES nurse (name), day INTEGER NOT NULL, shift TEXT NOT NULL, weight INTEGER NOT NULL,
    PRIMARY KEY (nurse, day, shift)
);
""",
    Spellings(
        """
CREATE CONSTRAINT every_shift_is_covered AS
SELECT need.day, need.shift
FROM need JOIN duty ON duty.day = need.day AND duty.variable__shift = need.shift
GROUP BY need.day, need.shift, need.nurses
CHECK count(*) >= need.nurses;

CREATE CONSTRAINT as_often_as_agreed AS
SELECT nurse.name
FROM duty JOIN nurse ON duty.nurse = nurse.name
WHERE duty.variable__shift IS NOT NULL
GROUP BY nurse.name, nurse.least, nurse.most
CHECK count(*) BETWEEN nurse.least AND nurse.most;

CREATE CONSTRAINT five_days_in_a_row AS
SELECT first.nurse, first.day
FROM duty AS first JOIN duty ON duty.nurse = first.nurse AND duty.day BETWEEN first.day AND first.day + 5
WHERE duty.variable__shift IS NOT NULL
GROUP BY first.nurse, first.day
CHECK count(*) <= 5;

CREATE CONSTRAINT rest_after_a_night AS
SELECT today.nurse, today.day
FROM duty AS today JOIN duty AS tomorrow ON tomorrow.nurse = today.nurse AND tomorrow.day = today.day + 1
WHERE today.variable__shift = 'night' AND tomorrow.variable__shift IN ('early', 'late')
CHECK FALSE;

CREATE CONSTRAINT wishes AS
SELECT wish.nurse, wish.day
FROM wish JOIN duty ON duty.nurse = wish.nurse AND duty.day = wish.day
WHERE duty.variable__shift = wish.shift
MINIMIZE sum(wish.weight);
""",
        """
CREATE CONSTRAINT every_shift_is_covered AS
SELECT day, shift FROM need
CHECK (SELECT count(*) FROM duty WHERE duty.day = need.day AND duty.variable__shift = need.shift) >= nurses;

CREATE CONSTRAINT as_often_as_agreed AS
SELECT name FROM nurse
CHECK (SELECT count(variable__shift) FROM duty WHERE duty.nurse = nurse.name) BETWEEN least AND most;

CREATE CONSTRAINT five_days_in_a_row AS
SELECT first.nurse, first.day FROM duty AS first
CHECK (
    SELECT count(*) FROM duty
    WHERE duty.nurse = first.nurse AND duty.day BETWEEN first.day AND first.day + 5
    AND duty.variable__shift IS NOT NULL
) <= 5;

CREATE CONSTRAINT rest_after_a_night AS
SELECT today.nurse, today.day FROM duty AS today
WHERE today.variable__shift = 'night'
CHECK NOT EXISTS (
    SELECT 1 FROM duty AS tomorrow
    WHERE tomorrow.nurse = today.nurse AND tomorrow.day = today.day + 1
    AND tomorrow.variable__shift IN ('early', 'late')
);

CREATE CONSTRAINT wishes AS
SELECT nurse, day FROM wish
WHERE EXISTS (
    SELECT 1 FROM duty WHERE duty.nurse = wish.nurse AND duty.day = wish.day AND duty.variable__shift = wish.shift
)
MINIMIZE sum(weight);
""",
        """
CREATE VIEW works AS
SELECT nurse, day, variable__shift AS shift FROM duty WHERE variable__shift IS NOT NULL;

CREATE VIEW cover AS
SELECT need.day, need.shift, need.nurses, count(*) AS there
FROM need JOIN works ON works.day = need.day AND works.shift = need.shift
GROUP BY need.day, need.shift, need.nurses;

CREATE CONSTRAINT every_shift_is_covered AS
SELECT day, shift FROM cover
CHECK there >= nurses;

CREATE VIEW month AS
SELECT nurse.name, nurse.least, nurse.most, count(*) AS days
FROM nurse JOIN works ON works.nurse = nurse.name
GROUP BY nurse.name, nurse.least, nurse.most;

CREATE CONSTRAINT as_often_as_agreed AS
SELECT name FROM month
CHECK days >= least AND days <= most;

CREATE CONSTRAINT five_days_in_a_row AS
SELECT first.nurse, first.day
FROM duty AS first JOIN works ON works.nurse = first.nurse AND works.day BETWEEN first.day AND first.day + 5
GROUP BY first.nurse, first.day
CHECK count(*) <= 5;

CREATE CONSTRAINT rest_after_a_night AS
SELECT a.nurse, a.day FROM works AS a JOIN works AS b ON b.nurse = a.nurse AND b.day = a.day + 1
WHERE a.shift = 'night'
CHECK b.shift = 'night';

CREATE CONSTRAINT wishes AS
SELECT wish.nurse, wish.day FROM wish JOIN works ON works.nurse = wish.nurse AND works.day = wish.day
WHERE works.shift = wish.shift
MINIMIZE sum(wish.weight);
""",
    ),
    _rosters,
)

_SEATS = (20, 20, 30, 30, 40, 60, 80, 120)


def _rooms(draw: Random, size: float) -> Instance:
    hours = range(1, scaled(10, size, 5) + 1)
    rooms = dict(zip(names("r", len(_SEATS)), _SEATS, strict=True))
    courses = names("c", len(_SEATS) * len(hours) * 3 // 4)
    # As many courses for each room as fill three quarters of its hours, so that there is room for all of them.
    students = {
        course: draw.randint(seats // 2, seats)
        for course, seats in zip(courses, [*_SEATS] * len(hours), strict=False)
    }
    teacher = {course: f"t{place // 3:03}" for place, course in enumerate(draw.sample(courses, len(courses)))}
    takes = {
        f"p{number:03}": sorted(draw.sample(courses, min(4, len(courses))))
        for number in range(len(courses) // 5)
    }
    apart = {pair for group in takes.values() for pair in combinations(group, 2)}
    apart |= {pair for pair in combinations(courses, 2) if teacher[pair[0]] == teacher[pair[1]]}
    dislike = {(course, hour): draw.randint(0, 9) for course in courses for hour in hours}

    def expert() -> Handwritten:
        model = cp_model.CpModel()
        at = dict(zip(courses, one_of_each(model, len(courses), len(hours)), strict=True))
        for one, other in apart:
            for hour in range(len(hours)):
                model.add_at_most_one(at[one][hour], at[other][hour])
        # Rooms are nested by their seats, so what needs more than so many must find as many rooms that have more.
        for seats in sorted({0, *_SEATS}):
            for hour in range(len(hours)):
                large = [at[course][hour] for course in courses if students[course] > seats]
                model.add(sum(large) <= sum(other > seats for other in _SEATS))
        cost = sum(dislike[course, hour] * at[course][hour - 1] for course in courses for hour in hours)

        def plan(solver: cp_model.CpSolver) -> Plan:
            hour_of = {course: (chosen(solver, at[course]) or 0) + 1 for course in courses}
            free = {hour: sorted(rooms, key=lambda room: rooms[room]) for hour in hours}
            room_of = {}
            for course in sorted(courses, key=lambda course: -students[course]):
                room_of[course,] = free[hour_of[course]].pop()
            return {
                ("course", "variable__hour"): {(course,): hour for course, hour in hour_of.items()},
                ("course", "variable__room"): room_of,
            }

        return Handwritten(model, [cost], plan)

    def check(plan: Plan) -> list[int]:
        hour = {course: whole(plan["course", "variable__hour"][course,]) for course in courses}
        room = {course: text(plan["course", "variable__room"][course,]) for course in courses}
        for course in courses:
            require(students[course] <= rooms[room[course]], f"{course} has seats for all")
        taken = totals(((room[course], hour[course]), 1) for course in courses)
        require(max(taken.values()) == 1, "a room has one course at a time")
        for one, other in apart:
            require(hour[one] != hour[other], f"{one} and {other} are not at once")
        return [sum(dislike[course, hour[course]] for course in courses)]

    return Instance(
        {
            "room": [{"name": room, "seats": seats} for room, seats in rooms.items()],
            "hour": [{"number": hour} for hour in hours],
            "course": [
                {"name": course, "teacher": teacher[course], "students": students[course]}
                for course in courses
            ],
            "programme": [
                {"name": name, "course": course} for name, group in takes.items() for course in group
            ],
            "dislike": [
                {"course": course, "hour": hour, "cost": cost} for (course, hour), cost in dislike.items()
            ],
        },
        expert,
        check,
    )


ROOMS = Problem(
    "rooms",
    "60 courses in 8 rooms and 10 hours: teachers and students are in one place, at the hours they like best",
    """
CREATE TABLE room (name TEXT PRIMARY KEY, seats INTEGER NOT NULL);
CREATE TABLE hour (number INTEGER PRIMARY KEY);
CREATE TABLE course (
    name TEXT PRIMARY KEY,
    teacher TEXT NOT NULL,
    students INTEGER NOT NULL,
    variable__room TEXT NOT NULL REFERENCES room (name),
    variable__hour INTEGER NOT NULL REFERENCES hour (number)
);
CREATE TABLE programme (
    name TEXT NOT NULL, course TEXT NOT NULL REFERENCES course (name), PRIMARY KEY (name, course)
);
CREATE TABLE dislike (
    course TEXT NOT NULL REFERENCES course (name), hour INTEGER NOT NULL, cost INTEGER NOT NULL,
    PRIMARY KEY (course, hour)
);
""",
    Spellings(
        """
CREATE CONSTRAINT seats_for_all AS
SELECT course.name
FROM course JOIN room ON course.variable__room = room.name
CHECK course.students <= room.seats;

CREATE CONSTRAINT one_course_at_a_time AS
SELECT room.name, hour.number
FROM course JOIN room ON course.variable__room = room.name JOIN hour ON course.variable__hour = hour.number
GROUP BY room.name, hour.number
CHECK count(*) <= 1;

CREATE CONSTRAINT teachers_are_in_one_place AS
SELECT teacher FROM course
GROUP BY teacher
CHECK all_different(variable__hour);

CREATE CONSTRAINT students_are_in_one_place AS
SELECT a.name
FROM programme AS a JOIN programme AS b ON a.name = b.name AND a.course < b.course
JOIN course AS one ON one.name = a.course JOIN course AS other ON other.name = b.course
CHECK one.variable__hour <> other.variable__hour;

CREATE CONSTRAINT disliked AS
SELECT course.name
FROM course JOIN dislike ON dislike.course = course.name AND dislike.hour = course.variable__hour
MINIMIZE sum(dislike.cost);
""",
        """
CREATE CONSTRAINT seats_for_all AS
SELECT name FROM course
CHECK students <= (SELECT seats FROM room WHERE room.name = course.variable__room);

CREATE CONSTRAINT one_course_at_a_time AS
SELECT a.name FROM course AS a
CHECK NOT EXISTS (
    SELECT 1 FROM course AS b
    WHERE b.name > a.name AND b.variable__room = a.variable__room AND b.variable__hour = a.variable__hour
);

CREATE CONSTRAINT teachers_are_in_one_place AS
SELECT a.name FROM course AS a
CHECK NOT EXISTS (
    SELECT 1 FROM course AS b
    WHERE b.teacher = a.teacher AND b.name > a.name AND b.variable__hour = a.variable__hour
);

CREATE CONSTRAINT students_are_in_one_place AS
SELECT a.name, a.course FROM programme AS a JOIN course AS one ON one.name = a.course
CHECK one.variable__hour NOT IN (
    SELECT other.variable__hour FROM programme AS b JOIN course AS other ON other.name = b.course
    WHERE b.name = a.name AND b.course > a.course
);

CREATE CONSTRAINT disliked AS
SELECT name FROM course
MINIMIZE sum((
    SELECT cost FROM dislike WHERE dislike.course = course.name AND dislike.hour = course.variable__hour
));
""",
        """
CREATE VIEW lesson AS
SELECT course.name, course.teacher, course.students, room.seats, course.variable__room AS place,
    course.variable__hour AS hour
FROM course JOIN room ON course.variable__room = room.name;

CREATE CONSTRAINT seats_for_all AS
SELECT name FROM lesson
CHECK students <= seats;

CREATE CONSTRAINT one_course_at_a_time AS
SELECT a.name, b.name FROM lesson AS a JOIN lesson AS b ON a.name < b.name
WHERE a.place = b.place AND a.hour = b.hour
CHECK FALSE;

CREATE CONSTRAINT teachers_are_in_one_place AS
SELECT a.name, b.name FROM lesson AS a JOIN lesson AS b ON a.teacher = b.teacher AND a.name < b.name
CHECK a.hour <> b.hour;

CREATE VIEW attends AS
SELECT programme.name, programme.course, lesson.hour FROM programme JOIN lesson ON lesson.name = programme.course;

CREATE CONSTRAINT students_are_in_one_place AS
SELECT name FROM attends
GROUP BY name
CHECK all_different(hour);

CREATE VIEW annoyance AS
SELECT lesson.name, dislike.cost FROM lesson JOIN dislike ON dislike.course = lesson.name
WHERE dislike.hour = lesson.hour;

CREATE CONSTRAINT disliked AS
SELECT name FROM annoyance
MINIMIZE sum(cost);
""",
    ),
    _rooms,
)
