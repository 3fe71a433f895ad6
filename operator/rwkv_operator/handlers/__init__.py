"""How events reach a pass: the only modules, besides `__main__`, that know kopf."""
