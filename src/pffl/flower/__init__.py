"""Flower: the same run on real machines (extra ``flower``).

client_app     a site's ClientApp: answers the four questions
server_app     the ServerApp of a folder that `pffl deploy` wrote: `solve`, unchanged
PFFLStrategy   a Strategy for those who have a Flower app already
"""

from pffl.engines.flower import GridTransport as GridTransport
from pffl.engines.flower import client_app as client_app
from pffl.flower.server import server_app as server_app
from pffl.flower.strategy import PFFLStrategy as PFFLStrategy
