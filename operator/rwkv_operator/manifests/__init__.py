"""From a parsed deployment to the objects that serve it, one file per kind of object.

Every `build_*` is pure: it returns a new dict and changes none of its arguments. Nothing here
talks to a cluster or reads the environment.
"""
