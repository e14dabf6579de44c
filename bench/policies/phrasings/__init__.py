"""A policy is fast however it is phrased: families of rules, each in several spellings that mean the same.

``state`` has the rows, ``families`` and ``pack_families`` the texts, ``case`` solves one of them in a process of its
own, ``answers`` checks the plan by plain SQL, ``report`` runs all and lays them beside what is asked.
"""
