"""Set Greenroom up and open it. Needs nothing but Python 3.11 or newer:

    python3 packaging/start.py           make the environment, fetch the demo model, open the window
    python3 packaging/start.py setup     make the environment only ("setup dev": with the tools that tests need)
    python3 packaging/start.py test ...  run every test (what follows goes to pytest)

Old Pythons must be able to read this file, to say that they are old; the work is in environment.py.
"""

import sys

OLDEST = (3, 11)

if sys.version_info < OLDEST:
    sys.stderr.write(
        "Greenroom needs Python 3.11 or newer, and this is Python "
        + ".".join(str(part) for part in sys.version_info[:3])
        + ".\nInstall a newer one beside it and start with that, for example: python3.12 packaging/start.py\n"
    )
    sys.exit(1)

if __name__ == "__main__":
    import environment

    sys.exit(environment.main(sys.argv[1:]))
