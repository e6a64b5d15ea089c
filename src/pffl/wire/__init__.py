"""What travels between server and sites, as bytes, and what is taken of it."""

from pffl.wire.admission import Gate as Gate
from pffl.wire.admission import Policy as Policy
from pffl.wire.admission import Verdict as Verdict
from pffl.wire.envelope import KEY as KEY
from pffl.wire.envelope import PROTOCOL as PROTOCOL
from pffl.wire.envelope import Answer as Answer
from pffl.wire.envelope import Request as Request
from pffl.wire.envelope import bodies_digest as bodies_digest
from pffl.wire.envelope import first_transcript as first_transcript
from pffl.wire.envelope import masked_body as masked_body
from pffl.wire.envelope import next_transcript as next_transcript
from pffl.wire.envelope import query_body as query_body
from pffl.wire.envelope import read_answer as read_answer
from pffl.wire.envelope import read_masked as read_masked
from pffl.wire.envelope import read_request as read_request
from pffl.wire.envelope import read_total as read_total
from pffl.wire.envelope import refusal as refusal
from pffl.wire.envelope import signed_content as signed_content
from pffl.wire.envelope import total_body as total_body
from pffl.wire.envelope import write_answer as write_answer
from pffl.wire.envelope import write_request as write_request
