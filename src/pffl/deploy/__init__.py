"""From a run file to ten hospitals: a Flower app, and a folder for each machine."""

from pffl.deploy.writing import deploy as deploy
