"""From a run file to ten hospitals: a Flower app, and a folder for each machine."""

from pffl.flower.deploy.folders import deploy as deploy
